/* See _json.h. */

#include "_json.h"

#include "_json_numbers.h"
#include "_json_times.h"

#include <stdlib.h>

#define MOST_DEPTH 32
#define MOST_NAME 1000 /* bytes */
#define MOST_KEYS 64   /* of a MAP: each is compared with those before it */
#define MOST_SIZE 1000000 /* bytes of a payload: of a larger one the values are counted first */
#define MOST_TIME 40
#define LAST_SECOND 253402300799 /* of the year 9999 */

typedef struct {
    const uint8_t *end;
    Columns *all;
    JsonReal real;
} Reader;

/* -- values that are skipped -------------------------------------------------------------------- */

/* A name, and what is between it and its value. */
static const uint8_t *name_of(const uint8_t *at, const uint8_t *end, Text *name) {
    at = string(skip_space(at, end), end, name);
    if (at == NULL || name->plain > MOST_NAME)
        return NULL;
    at = skip_space(at, end);
    return is_next(at, end, ':') ? skip_space(at + 1, end) : NULL;
}

static const uint8_t *skip_value(const uint8_t *at, const uint8_t *end, int depth) {
    Text text;
    Number n;
    if (at == end)
        return NULL;
    switch (*at) {
    case '"':
        return string(at, end, &text);
    case 't':
        return take_word(at, end, "true", 4);
    case 'f':
        return take_word(at, end, "false", 5);
    case 'n':
        return take_word(at, end, "null", 4);
    case '{':
    case '[':
        break;
    default:
        return number(at, end, &n);
    }
    if (depth == MOST_DEPTH)
        return NULL;
    int object = *at == '{';
    uint8_t close = object ? '}' : ']';
    at = skip_space(at + 1, end);
    if (!is_next(at, end, close))
        do {
            at = object ? name_of(at, end, &text) : skip_space(at, end);
            if (at == NULL || (at = skip_value(at, end, depth + 1)) == NULL)
                return NULL;
        } while (take_comma(&at, end));
    return is_next(at, end, close) ? at + 1 : NULL;
}

/* -- flat values -------------------------------------------------------------------------------- */

/* A text of a few bytes, from which its escapes are gone: from `inside` to `inside_end`. */
static const uint8_t *short_text(const Reader *r, const uint8_t *at,
                                 uint8_t plain[MOST_TIME + AHEAD], const uint8_t **inside,
                                 const uint8_t **inside_end) {
    Text text;
    if ((at = string(at, r->end, &text)) == NULL || text.plain > MOST_TIME)
        return NULL;
    *inside = text.at;
    if (text.plain < text.size) {
        unescape(&text, plain);
        *inside = plain;
    }
    *inside_end = *inside + text.plain;
    return at;
}

static NOT_INLINE const uint8_t *time_value(const Reader *r, Column *column, const uint8_t *at) {
    int64_t found;
    uint8_t plain[MOST_TIME + AHEAD];
    const uint8_t *inside, *end;
    if (column->kind == TIMESTAMP && !is_next(at, r->end, '"')) {
        at = any_whole(at, r->end, LAST_SECOND, &found);
        return at != NULL && put_time(r->all, column, found * 1000000) ? at : NULL;
    }
    if ((at = short_text(r, at, plain, &inside, &end)) == NULL)
        return NULL;
    inside = column->kind == DATE ? date(inside, end, &found)
                                  : instant(inside, end, column->kind == TIMESTAMP, &found);
    return inside == end && put_time(r->all, column, found) ? at : NULL;
}

static NOT_INLINE const uint8_t *decimal_value(const Reader *r, Column *column,
                                               const uint8_t *at) {
    Number n;
    uint8_t plain[MOST_TIME + AHEAD];
    const uint8_t *inside, *end;
    if (is_next(at, r->end, '"')) {
        if ((at = short_text(r, at, plain, &inside, &end)) == NULL || number(inside, end, &n) != end)
            return NULL;
    } else if ((at = number(at, r->end, &n)) == NULL) {
        return NULL;
    }
    return !n.has_exponent && n.digits + n.dots <= 19 &&
                   put_decimal(r->all, column, 0, n.mantissa, n.negative, n.dots)
               ? at
               : NULL;
}

static NOT_INLINE const uint8_t *real_value(const Reader *r, Column *column, const uint8_t *at) {
    Number n;
    double real;
    int bits = column->kind == FLOAT ? FLT_MANT_DIG : DBL_MANT_DIG;
    if ((at = number(at, r->end, &n)) == NULL || !real_of(&n, bits, r->real, &real))
        return NULL;
    float single = (float)real;
    return (column->kind == FLOAT ? put_fixed(r->all, column, &single, sizeof single)
                                  : put_fixed(r->all, column, &real, sizeof real))
               ? at
               : NULL;
}

static int sextet_of(uint8_t byte) {
    if (byte >= 'A' && byte <= 'Z')
        return byte - 'A';
    if (byte >= 'a' && byte <= 'z')
        return byte - 'a' + 26;
    if (byte >= '0' && byte <= '9')
        return byte - '0' + 52;
    return byte == '+' ? 62 : byte == '/' ? 63 : -1;
}

/* Base64 with its padding. */
static NOT_INLINE const uint8_t *bytes_value(const Reader *r, Column *column, const uint8_t *at) {
    Text text;
    at = string(at, r->end, &text);
    if (at == NULL || text.plain != text.size || text.size % 4)
        return NULL;
    size_t size = text.size / 4 * 3, used = text.size;
    while (used > 0 && text.at[used - 1] == '=' && text.size - used < 2)
        used--, size--;
    uint8_t *to = text_room(r->all, column, size);
    if (to == NULL)
        return NULL;
    uint32_t bits = 0;
    for (size_t i = 0; i < used; i++) {
        int sextet = sextet_of(text.at[i]);
        if (sextet < 0)
            return NULL;
        bits = bits << 6 | (uint32_t)sextet;
        if (i % 4)
            *to++ = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    if (used % 4 && bits & (used % 4 == 2 ? 0xF : 0x3))
        return NULL; /* bits behind the last byte */
    return end_text(r->all, column, size) ? at : NULL;
}

/* Of a value that is no text its JSON, as it came. */
static NOT_INLINE const uint8_t *json_value(const Reader *r, Column *column, const uint8_t *at,
                                            int depth) {
    const uint8_t *end = skip_value(at, r->end, depth);
    return end != NULL && put_text(r->all, column, at, (size_t)(end - at)) ? end : NULL;
}

static NOT_INLINE const uint8_t *escaped_value(const Reader *r, Column *column, const uint8_t *at,
                                               const Text *text) {
    uint8_t *to = text_room(r->all, column, text->plain);
    if (to == NULL)
        return NULL;
    unescape(text, to);
    return end_text(r->all, column, text->plain) ? at : NULL;
}

static INLINE const uint8_t *text_value(const Reader *r, Column *column, const uint8_t *at,
                                        int depth) {
    Text text;
    if (*at != '"')
        return json_value(r, column, at, depth);
    if ((at = string(at, r->end, &text)) == NULL)
        return NULL;
    if (text.plain < text.size) {
        Text escaped = text;
        return escaped_value(r, column, at, &escaped);
    }
    uint8_t *to = text_room(r->all, column, text.size);
    if (to == NULL)
        return NULL;
    if (text.size <= 64) /* a call costs more */
        for (size_t i = 0; i < text.size; i += 16)
            memcpy(to + i, text.at + i, 16);
    else
        memcpy(to, text.at, text.size);
    return end_text(r->all, column, text.size) ? at : NULL;
}

static INLINE const uint8_t *whole_value(const Reader *r, Column *column, const uint8_t *at,
                                         int64_t most, size_t width) {
    int64_t found;
    if ((at = whole(at, r->end, most, &found)) == NULL)
        return NULL;
    int8_t one = (int8_t)found;
    int16_t two = (int16_t)found;
    int32_t four = (int32_t)found;
    const void *from = width == 1   ? (void *)&one
                       : width == 2 ? (void *)&two
                       : width == 4 ? (void *)&four
                                    : (void *)&found;
    return put_fixed(r->all, column, from, width) ? at : NULL;
}

static INLINE const uint8_t *truth_value(const Reader *r, Column *column, const uint8_t *at) {
    int is_true = is_next(at, r->end, 't');
    at = is_true ? take_word(at, r->end, "true", 4) : take_word(at, r->end, "false", 5);
    return at != NULL && put_truth(r->all, column, is_true) ? at : NULL;
}

/* -- nested values ------------------------------------------------------------------------------ */

static const uint8_t *list_value(const Reader *r, Column *column, const uint8_t *at, int depth);
static const uint8_t *map_value(const Reader *r, Column *column, const uint8_t *at, int depth);
static const uint8_t *object_value(const Reader *r, Column *column, const uint8_t *at, int depth);

static INLINE const uint8_t *value(const Reader *r, Column *column, const uint8_t *at, int depth) {
    if (*at == 'n')
        return (at = take_word(at, r->end, "null", 4)) != NULL && put_null(r->all, column) ? at
                                                                                           : NULL;
    switch (column->kind) {
    case BOOLEAN:
        return truth_value(r, column, at);
    case INT8:
        return whole_value(r, column, at, INT8_MAX, 1);
    case INT16:
        return whole_value(r, column, at, INT16_MAX, 2);
    case INT32:
        return whole_value(r, column, at, INT32_MAX, 4);
    case INT64:
        return whole_value(r, column, at, INT64_MAX - 1, 8);
    case FLOAT:
    case DOUBLE:
        return real_value(r, column, at);
    case STRING:
        return text_value(r, column, at, depth);
    case BINARY:
        return bytes_value(r, column, at);
    case DATE:
    case TIMESTAMP:
    case TIMESTAMP_NTZ:
        return time_value(r, column, at);
    case DECIMAL:
        return decimal_value(r, column, at);
    case STRUCT:
        return object_value(r, column, at, depth);
    case LIST:
        return list_value(r, column, at, depth);
    case MAP:
        return map_value(r, column, at, depth);
    default:
        return NULL;
    }
}

static const uint8_t *list_value(const Reader *r, Column *column, const uint8_t *at, int depth) {
    if (depth == MOST_DEPTH || !is_next(at, r->end, '['))
        return NULL;
    at = skip_space(at + 1, r->end);
    if (!is_next(at, r->end, ']'))
        do {
            at = skip_space(at, r->end);
            if (!count_items(r->all, column, 1) ||
                (at = value(r, column->children, at, depth + 1)) == NULL)
                return NULL;
        } while (take_comma(&at, r->end));
    return is_next(at, r->end, ']') && end_list(r->all, column) ? at + 1 : NULL;
}

static int is_in(const Column *keys, size_t first, const uint8_t *key, size_t size) {
    for (size_t row = first; row < keys->rows; row++) {
        size_t from = items_of(keys, row);
        if (items_of(keys, row + 1) - from == size && memcmp(keys->values.at + from, key, size) == 0)
            return 1;
    }
    return 0;
}

static const uint8_t *map_value(const Reader *r, Column *column, const uint8_t *at, int depth) {
    Column *entries = column->children, *keys = &entries->children[0];
    size_t first = entries->rows;
    if (depth == MOST_DEPTH || !is_next(at, r->end, '{'))
        return NULL;
    at = skip_space(at + 1, r->end);
    if (!is_next(at, r->end, '}'))
        do {
            Text name;
            uint8_t *key;
            if ((at = name_of(at, r->end, &name)) == NULL || entries->rows - first == MOST_KEYS ||
                !count_items(r->all, column, 1) ||
                (key = text_room(r->all, keys, name.plain)) == NULL)
                return NULL;
            unescape(&name, key);
            if (is_in(keys, first, key, name.plain) || !end_text(r->all, keys, name.plain) ||
                (at = value(r, &entries->children[1], at, depth + 1)) == NULL ||
                !end_struct(r->all, entries))
                return NULL;
        } while (take_comma(&at, r->end));
    return is_next(at, r->end, '}') && end_list(r->all, column) ? at + 1 : NULL;
}

static size_t field_named(const Column *column, const uint8_t *name, size_t size, size_t expected) {
    size_t count = column->count;
    for (size_t i = 0; i < count; i++) {
        size_t index = expected + i < count ? expected + i : expected + i - count;
        const Column *field = &column->children[index];
        if (field->name_size == size && memcmp(field->name, name, size) == 0)
            return index;
    }
    return count;
}

static inline int has_key(const uint8_t *at, const uint8_t *end, const Column *column,
                          size_t index) {
    const Column *field = &column->children[index];
    return index < column->count && (size_t)(end - at) >= field->key_size &&
           begins_with(at, field->key, field->key_size);
}

/* Behind a name that is not expected, or in another form. `index`: of the field that is expected,
   and then of the one with the name; `count` if there is none. `learned`: which came here before. */
static NOT_INLINE const uint8_t *other_name(const Reader *r, const Column *column,
                                            const uint8_t *at, size_t *index, size_t *learned) {
    uint8_t plain[MOST_NAME + 16];
    Text name;
    if (has_key(at, r->end, column, *learned)) {
        *index = *learned;
        return skip_space(at + column->children[*index].key_size, r->end);
    }
    if ((at = name_of(at, r->end, &name)) == NULL)
        return NULL;
    if (name.plain < name.size) {
        unescape(&name, plain);
        name.at = plain;
    }
    *index = *learned = field_named(column, name.at, name.plain, *index);
    return at;
}

/* Objects mostly have their members in one order, that of the schema or their own, so the name of
   the next one is guessed before it is read. */
static const uint8_t *object_value(const Reader *r, Column *column, const uint8_t *at, int depth) {
    const uint8_t *end = r->end;
    size_t *learned = &column->first, next = 0, row = column->rows, fields = 0,
           count = column->count;
    if (depth == MOST_DEPTH || !is_next(at, end, '{'))
        return NULL;
    at = skip_space(at + 1, end);
    if (!is_next(at, end, '}'))
        do {
            size_t index = next;
            at = skip_space(at, end);
            if (has_key(at, end, column, index))
                at = skip_space(at + column->children[index].key_size, end);
            else if ((at = other_name(r, column, at, &index, learned)) == NULL)
                return NULL;
            if (index == count) {
                at = skip_value(at, end, depth + 1);
            } else if (column->children[index].rows != row) {
                return NULL; /* twice */
            } else {
                at = value(r, &column->children[index], at, depth + 1);
                learned = &column->children[index].after;
                next = index + 1;
                fields++;
            }
            if (at == NULL)
                return NULL;
        } while (take_comma(&at, end));
    if (!is_next(at, end, '}'))
        return NULL;
    for (size_t i = 0; fields < count; i++)
        if (column->children[i].rows == row) {
            if (!put_null(r->all, &column->children[i]))
                return NULL;
            fields++;
        }
    return end_struct(r->all, column) ? at + 1 : NULL;
}

/* -- rows --------------------------------------------------------------------------------------- */

int json_keys(Column *column) {
    for (size_t i = 0; i < column->count; i++) {
        Column *field = &column->children[i];
        size_t size = field->name_size;
        if (!json_keys(field) || (field->key = calloc(1, size + 3 + AHEAD)) == NULL)
            return 0;
        field->key[0] = '"';
        memcpy(field->key + 1, field->name, size);
        memcpy(field->key + 1 + size, "\":", 2);
        Text text;
        int is_plain = size <= MOST_NAME &&
                       string(field->key, field->key + size + 3, &text) != NULL &&
                       text.plain == size;
        field->key_size = is_plain ? size + 3 : SIZE_MAX;
    }
    return 1;
}

int json_row(Columns *all, const uint8_t *at, size_t size, JsonReal real) {
    Reader r = {at + size, all, real};
    size_t row = all->root.rows, before = all->size;
    if (size > MOST_SIZE)
        return 0;
    at = object_value(&r, &all->root, skip_space(at, r.end), 0);
    if (at != NULL && skip_space(at, r.end) == r.end)
        return 1;
    cut_rows(&all->root, row);
    all->size = before;
    return 0;
}
