/* See _json.h. */

#include "_json.h"

#include <float.h>
#include <math.h>

#define MOST_DEPTH 32
#define MOST_NAME 1000 /* bytes */
#define MOST_KEYS 64   /* of a MAP: each is compared with those before it */
#define MOST_SIZE 1000000 /* bytes of a payload: of a larger one the values are counted first */
#define MOST_NUMBER 40
#define MOST_TIME 40
#define LAST_SECOND 253402300799 /* of the year 9999 */
#define MOST_PLACES 22 /* of a power of ten that is a double itself */

typedef struct {
    const uint8_t *at, *end;
} Cursor;

/* A string, between its quotes. */
typedef struct {
    const uint8_t *at;
    size_t size;
    size_t plain; /* bytes without its escapes */
} Text;

static void skip_space(Cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r'))
        c->at++;
}

static int take(Cursor *c, uint8_t byte) {
    if (c->at == c->end || *c->at != byte)
        return 0;
    c->at++;
    return 1;
}

static int take_word(Cursor *c, const char *word, size_t size) {
    if ((size_t)(c->end - c->at) < size || memcmp(c->at, word, size) != 0)
        return 0;
    c->at += size;
    return 1;
}

/* -- strings ------------------------------------------------------------------------------------ */

static int hex4(const uint8_t *at, const uint8_t *end, unsigned *unit) {
    if (end - at < 4)
        return 0;
    unsigned sum = 0;
    for (int i = 0; i < 4; i++) {
        uint8_t byte = at[i];
        unsigned digit;
        if (byte >= '0' && byte <= '9')
            digit = byte - '0';
        else if ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'f')
            digit = (byte | 0x20) - 'a' + 10;
        else
            return 0;
        sum = sum << 4 | digit;
    }
    *unit = sum;
    return 1;
}

static size_t utf8_size(unsigned point) {
    return point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
}

/* Moves behind an escape, from behind its backslash; surrogates only in pairs. Returns the size of
   its character in UTF-8, or 0. */
static size_t skip_escape(Cursor *c) {
    if (c->at == c->end)
        return 0;
    uint8_t byte = *c->at++;
    if (byte != 'u')
        return byte != 0 && strchr("\"\\/bfnrt", byte) != NULL;
    unsigned unit, low;
    if (!hex4(c->at, c->end, &unit))
        return 0;
    c->at += 4;
    if (unit < 0xD800 || unit > 0xDFFF)
        return utf8_size(unit);
    if (unit > 0xDBFF || c->end - c->at < 6 || c->at[0] != '\\' || c->at[1] != 'u' ||
        !hex4(c->at + 2, c->end, &low) || low < 0xDC00 || low > 0xDFFF)
        return 0;
    c->at += 6;
    return 4;
}

/* Moves to the next byte of a string that is not plain: a quote, a backslash, a control character,
   or one beyond ASCII. */
static const uint8_t *skip_plain(Cursor *c) {
    const uint64_t ones = 0x0101010101010101, high = 0x8080808080808080;
    for (; c->end - c->at >= 8; c->at += 8) {
        uint64_t eight;
        memcpy(&eight, c->at, 8);
        uint64_t quote = eight ^ ones * '"', slash = eight ^ ones * '\\';
        uint64_t found = ((eight - ones * 0x20) | (quote - ones) | (slash - ones) | eight) & high;
        if (found)
            break; /* the lowest of these bytes is one; of those above it some may be plain */
    }
    while (c->at < c->end && *c->at >= 0x20 && *c->at < 0x80 && *c->at != '"' && *c->at != '\\')
        c->at++;
    return c->at;
}

/* Moves behind a string, from its first quote. */
static int string(Cursor *c, Text *text) {
    if (!take(c, '"'))
        return 0;
    size_t saved = 0;
    text->at = c->at;
    while (skip_plain(c) < c->end) {
        uint8_t byte = *c->at;
        if (byte == '"') {
            text->size = (size_t)(c->at - text->at);
            text->plain = text->size - saved;
            c->at++;
            return 1;
        }
        if (byte < 0x20)
            return 0;
        if (byte >= 0x80) {
            size_t wide = wide_size(c->at, c->end);
            if (wide == 0)
                return 0;
            c->at += wide;
        } else {
            const uint8_t *from = c->at++;
            size_t size = skip_escape(c);
            if (size == 0)
                return 0;
            saved += (size_t)(c->at - from) - size;
        }
    }
    return 0;
}

static uint8_t *put_utf8(uint8_t *to, unsigned point) {
    if (point < 0x80) {
        *to++ = (uint8_t)point;
    } else if (point < 0x800) {
        *to++ = (uint8_t)(0xC0 | point >> 6);
        *to++ = (uint8_t)(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
        *to++ = (uint8_t)(0xE0 | point >> 12);
        *to++ = (uint8_t)(0x80 | (point >> 6 & 0x3F));
        *to++ = (uint8_t)(0x80 | (point & 0x3F));
    } else {
        *to++ = (uint8_t)(0xF0 | point >> 18);
        *to++ = (uint8_t)(0x80 | (point >> 12 & 0x3F));
        *to++ = (uint8_t)(0x80 | (point >> 6 & 0x3F));
        *to++ = (uint8_t)(0x80 | (point & 0x3F));
    }
    return to;
}

static void unescape(const Text *text, uint8_t *to) {
    const uint8_t *at = text->at, *end = at + text->size;
    if (text->plain == text->size && text->size > 0) {
        memcpy(to, at, text->size);
        return;
    }
    while (at < end) {
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        uint8_t byte = at[1];
        at += 2;
        if (byte == 'u') {
            unsigned point = 0, low = 0;
            hex4(at, end, &point);
            at += 4;
            if (point >= 0xD800 && point <= 0xDBFF) {
                hex4(at + 2, end, &low);
                at += 6;
                point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
            }
            to = put_utf8(to, point);
        } else {
            *to++ = byte == 'b'   ? '\b'
                    : byte == 'f' ? '\f'
                    : byte == 'n' ? '\n'
                    : byte == 'r' ? '\r'
                    : byte == 't' ? '\t'
                                  : byte;
        }
    }
}

/* -- numbers ------------------------------------------------------------------------------------ */

typedef struct {
    const uint8_t *at;
    size_t size;
    int negative, digits, dots; /* digits before, and those behind the point */
    int exponent, has_exponent;
    uint64_t mantissa; /* of up to 19 digits, else it means nothing */
} Number;

static int is_digit(const Cursor *c) {
    return c->at < c->end && *c->at >= '0' && *c->at <= '9';
}

static int number(Cursor *c, Number *n) {
    memset(n, 0, sizeof *n);
    n->at = c->at;
    n->negative = take(c, '-');
    if (!is_digit(c))
        return 0;
    if (*c->at == '0' && c->at + 1 < c->end && c->at[1] >= '0' && c->at[1] <= '9')
        return 0;
    for (; is_digit(c); c->at++, n->digits++)
        n->mantissa = n->mantissa * 10 + (*c->at - '0');
    if (take(c, '.')) {
        if (!is_digit(c))
            return 0;
        for (; is_digit(c); c->at++, n->dots++)
            n->mantissa = n->mantissa * 10 + (*c->at - '0');
    }
    if (c->at < c->end && (*c->at == 'e' || *c->at == 'E')) {
        c->at++;
        n->has_exponent = 1;
        int less = take(c, '-');
        if (!less)
            take(c, '+');
        if (!is_digit(c))
            return 0;
        for (; is_digit(c); c->at++)
            if (n->exponent < 100000)
                n->exponent = n->exponent * 10 + (*c->at - '0');
        if (less)
            n->exponent = -n->exponent;
    }
    n->size = (size_t)(c->at - n->at);
    return n->size <= MOST_NUMBER;
}

static int is_whole(const Number *n) {
    return !n->dots && !n->has_exponent;
}

static int whole_of(const Number *n, int64_t most, int64_t *value) {
    if (!is_whole(n) || n->digits > 18 || (n->negative && n->mantissa == 0))
        return 0;
    int64_t found = (int64_t)n->mantissa;
    if (found > most + n->negative)
        return 0;
    *value = n->negative ? -found : found;
    return 1;
}

static const double tens[MOST_PLACES + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                             1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                             1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

#ifdef __SIZEOF_INT128__
#define MOST_POWER 19 /* of ten, in 64 bits */

/* The number of so many bits that is nearest to mantissa * 10^power. */
static double nearest(uint64_t mantissa, int power, int bits) {
    unsigned __int128 value = mantissa;
    uint64_t ten = 1;
    int exponent = 0, has_rest = 0;
    for (int i = power < 0 ? -power : power; i > 0; i--)
        ten *= 10;
    if (power < 0) {
        exponent = -64 - __builtin_clzll(mantissa);
        value <<= -exponent;
        has_rest = value % ten != 0;
        value /= ten;
    } else {
        value *= ten;
    }
    uint64_t above = (uint64_t)(value >> 64);
    int size = above ? 128 - __builtin_clzll(above) : 64 - __builtin_clzll((uint64_t)value);
    int less = size - bits;
    if (less > 0) {
        unsigned __int128 half = (unsigned __int128)1 << (less - 1), rest = value & (2 * half - 1);
        value >>= less;
        exponent += less;
        value += rest > half || (rest == half && (has_rest || value % 2));
    }
    return ldexp((double)(uint64_t)value, exponent);
}
#endif

/* The number of so many bits that is nearest; of a whole number only the same one. */
static int real_of(const Number *n, int bits, JsonReal real, double *value) {
    int is_short = n->digits + n->dots <= 19, power = n->exponent - n->dots;
    if (is_whole(n) && (!is_short || n->mantissa >> bits || (n->negative && n->mantissa == 0)))
        return 0; /* of a whole number 0 has no sign */
    double found;
    if (is_short && n->mantissa == 0) {
        found = 0;
    } else if (bits == DBL_MANT_DIG && is_short && n->mantissa >> DBL_MANT_DIG == 0 &&
               power >= -MOST_PLACES && power <= MOST_PLACES) {
        /* Both are exact, so the one rounding gives the nearest. */
        found = (double)n->mantissa;
        found = power < 0 ? found / tens[-power] : found * tens[power];
#ifdef __SIZEOF_INT128__
    } else if (is_short && power >= -MOST_POWER && power <= MOST_POWER) {
        found = nearest(n->mantissa, power, bits);
#endif
    } else if (bits == DBL_MANT_DIG) {
        char text[MOST_NUMBER + 1];
        memcpy(text, n->at, n->size);
        text[n->size] = 0;
        *value = real(text);
        return isfinite(*value);
    } else {
        return 0;
    }
    *value = n->negative ? -found : found;
    return 1;
}

/* -- times -------------------------------------------------------------------------------------- */

/* Takes so many digits. */
static int digits(Cursor *c, int count, int *value) {
    *value = 0;
    for (; count > 0; count--) {
        if (!is_digit(c))
            return 0;
        *value = *value * 10 + (*c->at++ - '0');
    }
    return 1;
}

/* Takes 2026-01-31, of year 1 on; days since 1970. */
static int date(Cursor *c, int64_t *days) {
    static const int lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day;
    if (!digits(c, 4, &year) || !take(c, '-') || !digits(c, 2, &month) || !take(c, '-') ||
        !digits(c, 2, &day) || year < 1 || month < 1 || month > 12 || day < 1 ||
        day > lengths[month - 1])
        return 0;
    int leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (month == 2 && day == 29 && !leap)
        return 0;
    *days = days_of(year, month, day);
    return 1;
}

/* Takes 2026-01-31T12:00:00.123456, and Z or an offset if it has a zone; microseconds since 1970. */
static int instant(Cursor *c, int has_zone, int64_t *micros) {
    int64_t days;
    int hours, minutes, seconds, fraction = 0, offset = 0;
    if (!date(c, &days) || !(take(c, 'T') || take(c, ' ')) || !digits(c, 2, &hours) ||
        !take(c, ':') || !digits(c, 2, &minutes) || !take(c, ':') || !digits(c, 2, &seconds) ||
        hours > 23 || minutes > 59 || seconds > 59)
        return 0;
    if (take(c, '.')) {
        int count = 0;
        for (; is_digit(c) && count < 9; c->at++, count++)
            if (count < 6)
                fraction = fraction * 10 + (*c->at - '0');
        if (count == 0)
            return 0;
        for (; count < 6; count++)
            fraction *= 10;
    }
    if (has_zone && !take(c, 'Z')) {
        int sign = take(c, '+') ? 1 : take(c, '-') ? -1 : 0;
        int over, more;
        if (sign == 0 || !digits(c, 2, &over) || !take(c, ':') || !digits(c, 2, &more) ||
            over > 17 || more > 59)
            return 0;
        offset = sign * (over * 60 + more) * 60;
    }
    int64_t second = days * 86400 + hours * 3600 + minutes * 60 + seconds - offset;
    *micros = second * 1000000 + fraction;
    return 1;
}

/* -- values ------------------------------------------------------------------------------------- */

typedef struct {
    Cursor c;
    Columns *all;
    JsonReal real;
} Reader;

static int value(Reader *r, Column *column, int depth);

static int skip_value(Cursor *c, int depth) {
    Text text;
    Number n;
    if (c->at == c->end)
        return 0;
    switch (*c->at) {
    case '"':
        return string(c, &text);
    case 't':
        return take_word(c, "true", 4);
    case 'f':
        return take_word(c, "false", 5);
    case 'n':
        return take_word(c, "null", 4);
    case '{':
    case '[':
        break;
    default:
        return number(c, &n);
    }
    if (depth == MOST_DEPTH)
        return 0;
    int object = *c->at++ == '{';
    uint8_t close = object ? '}' : ']';
    skip_space(c);
    if (take(c, close))
        return 1;
    do {
        skip_space(c);
        if (object) {
            if (!string(c, &text) || text.plain > MOST_NAME)
                return 0;
            skip_space(c);
            if (!take(c, ':'))
                return 0;
            skip_space(c);
        }
        if (!skip_value(c, depth + 1))
            return 0;
        skip_space(c);
    } while (take(c, ','));
    return take(c, close);
}

/* A text of a few bytes, from which its escapes are gone. */
static int short_text(Cursor *c, uint8_t plain[MOST_TIME], Cursor *inside) {
    Text text;
    if (!string(c, &text) || text.plain > MOST_TIME)
        return 0;
    if (text.plain == text.size) {
        *inside = (Cursor){text.at, text.at + text.size};
    } else {
        unescape(&text, plain);
        *inside = (Cursor){plain, plain + text.plain};
    }
    return 1;
}

static int time_value(Reader *r, Column *column) {
    int64_t found;
    Number n;
    Cursor inside;
    uint8_t plain[MOST_TIME];
    if (column->kind == TIMESTAMP && r->c.at < r->c.end && *r->c.at != '"') {
        return number(&r->c, &n) && whole_of(&n, LAST_SECOND, &found) &&
               put_time(r->all, column, found * 1000000);
    }
    if (!short_text(&r->c, plain, &inside))
        return 0;
    int is_right = column->kind == DATE ? date(&inside, &found)
                                        : instant(&inside, column->kind == TIMESTAMP, &found);
    return is_right && inside.at == inside.end && put_time(r->all, column, found);
}

static int decimal_value(Reader *r, Column *column) {
    Number n;
    Cursor inside;
    uint8_t plain[MOST_TIME];
    int is_text = r->c.at < r->c.end && *r->c.at == '"';
    if (is_text && !short_text(&r->c, plain, &inside))
        return 0;
    if (!number(is_text ? &inside : &r->c, &n) || (is_text && inside.at < inside.end))
        return 0;
    return !n.has_exponent && n.digits + n.dots <= 19 &&
           put_decimal(r->all, column, 0, n.mantissa, n.negative, n.dots);
}

static int text_value(Reader *r, Column *column, int depth) {
    Text text;
    const uint8_t *from = r->c.at;
    if (from < r->c.end && *from == '"') {
        if (!string(&r->c, &text))
            return 0;
        if (text.plain == text.size)
            return put_text(r->all, column, text.at, text.size);
        uint8_t *to = text_room(r->all, column, text.plain);
        if (to == NULL)
            return 0;
        unescape(&text, to);
        return end_text(r->all, column, text.plain);
    }
    /* Of any other value its JSON, as it came. */
    return skip_value(&r->c, depth) && put_text(r->all, column, from, (size_t)(r->c.at - from));
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
static int bytes_value(Reader *r, Column *column) {
    Text text;
    if (!string(&r->c, &text) || text.plain != text.size || text.size % 4)
        return 0;
    const uint8_t *at = text.at;
    size_t size = text.size / 4 * 3, used = text.size;
    while (used > 0 && at[used - 1] == '=' && text.size - used < 2)
        used--, size--;
    uint8_t *to = text_room(r->all, column, size);
    if (to == NULL)
        return 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < used; i++) {
        int sextet = sextet_of(at[i]);
        if (sextet < 0)
            return 0;
        bits = bits << 6 | (uint32_t)sextet;
        if (i % 4)
            *to++ = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    if (used % 4 && bits & (used % 4 == 2 ? 0xF : 0x3))
        return 0; /* bits behind the last byte */
    return end_text(r->all, column, size);
}

static int list_value(Reader *r, Column *column, int depth) {
    if (depth == MOST_DEPTH || !take(&r->c, '['))
        return 0;
    skip_space(&r->c);
    if (!take(&r->c, ']')) {
        do {
            skip_space(&r->c);
            if (!count_items(r->all, column, 1) || !value(r, column->children, depth + 1))
                return 0;
            skip_space(&r->c);
        } while (take(&r->c, ','));
        if (!take(&r->c, ']'))
            return 0;
    }
    return end_list(r->all, column);
}

/* Takes a name, and what is between it and its value. */
static int name_of(Cursor *c, Text *name) {
    skip_space(c);
    if (!string(c, name) || name->plain > MOST_NAME)
        return 0;
    skip_space(c);
    if (!take(c, ':'))
        return 0;
    skip_space(c);
    return 1;
}

static int map_value(Reader *r, Column *column, int depth) {
    Column *entries = column->children, *keys = &entries->children[0];
    size_t first = entries->rows;
    if (depth == MOST_DEPTH || !take(&r->c, '{'))
        return 0;
    skip_space(&r->c);
    if (!take(&r->c, '}')) {
        do {
            Text name;
            uint8_t *key;
            if (!name_of(&r->c, &name) || entries->rows - first == MOST_KEYS ||
                !count_items(r->all, column, 1) ||
                (key = text_room(r->all, keys, name.plain)) == NULL)
                return 0;
            unescape(&name, key);
            for (size_t row = first; row < entries->rows; row++) {
                size_t from = items_of(keys, row);
                if (items_of(keys, row + 1) - from == name.plain &&
                    memcmp(keys->values.at + from, key, name.plain) == 0)
                    return 0; /* twice */
            }
            if (!end_text(r->all, keys, name.plain) ||
                !value(r, &entries->children[1], depth + 1) || !end_struct(r->all, entries))
                return 0;
            skip_space(&r->c);
        } while (take(&r->c, ','));
        if (!take(&r->c, '}'))
            return 0;
    }
    return end_list(r->all, column);
}

static Column *field_named(const uint8_t *name, size_t size, const Column *column, size_t *next) {
    size_t count = column->count;
    for (size_t i = 0; i < count; i++) {
        /* Objects mostly have their members in the same order. */
        size_t index = *next + i < count ? *next + i : *next + i - count;
        Column *field = &column->children[index];
        if (field->name_size == size && memcmp(field->name, name, size) == 0) {
            *next = index + 1 < count ? index + 1 : 0;
            return field;
        }
    }
    return NULL;
}

static int object_value(Reader *r, Column *column, int depth) {
    uint8_t plain[MOST_NAME];
    size_t next = 0, row = column->rows;
    if (depth == MOST_DEPTH || !take(&r->c, '{'))
        return 0;
    skip_space(&r->c);
    if (!take(&r->c, '}')) {
        do {
            Text name;
            if (!name_of(&r->c, &name))
                return 0;
            if (name.plain < name.size) {
                unescape(&name, plain);
                name.at = plain;
            }
            Column *field = field_named(name.at, name.plain, column, &next);
            if (field == NULL) {
                if (!skip_value(&r->c, depth + 1))
                    return 0;
            } else if (field->rows != row || !value(r, field, depth + 1)) {
                return 0; /* twice, or a misfit */
            }
            skip_space(&r->c);
        } while (take(&r->c, ','));
        if (!take(&r->c, '}'))
            return 0;
    }
    for (size_t i = 0; i < column->count; i++)
        if (column->children[i].rows == row && !put_null(r->all, &column->children[i]))
            return 0;
    return end_struct(r->all, column);
}

static int value(Reader *r, Column *column, int depth) {
    static const int64_t most[KINDS] = {
        [INT8] = INT8_MAX, [INT16] = INT16_MAX, [INT32] = INT32_MAX, [INT64] = INT64_MAX - 1};
    Number n;
    int64_t whole;
    double real;
    if (take_word(&r->c, "null", 4))
        return put_null(r->all, column);
    switch (column->kind) {
    case BOOLEAN:
        whole = take_word(&r->c, "true", 4);
        return (whole || take_word(&r->c, "false", 5)) && put_truth(r->all, column, (int)whole);
    case FLOAT:
        if (!number(&r->c, &n) || !real_of(&n, FLT_MANT_DIG, r->real, &real))
            return 0;
        float single = (float)real;
        return put_fixed(r->all, column, &single, sizeof single);
    case DOUBLE:
        return number(&r->c, &n) && real_of(&n, DBL_MANT_DIG, r->real, &real) &&
               put_fixed(r->all, column, &real, sizeof real);
    case STRING:
        return text_value(r, column, depth);
    case BINARY:
        return bytes_value(r, column);
    case DATE:
    case TIMESTAMP:
    case TIMESTAMP_NTZ:
        return time_value(r, column);
    case DECIMAL:
        return decimal_value(r, column);
    case STRUCT:
        return object_value(r, column, depth);
    case LIST:
        return list_value(r, column, depth);
    case MAP:
        return map_value(r, column, depth);
    default:
        return number(&r->c, &n) && whole_of(&n, most[column->kind], &whole) &&
               put_whole(r->all, column, whole);
    }
}

int json_row(Columns *all, const uint8_t *at, size_t size, JsonReal real) {
    Reader r = {{at, at + size}, all, real};
    size_t row = all->root.rows, before = all->size;
    if (size > MOST_SIZE)
        return 0;
    skip_space(&r.c);
    if (object_value(&r, &all->root, 0)) {
        skip_space(&r.c);
        if (r.c.at == r.c.end)
            return 1;
    }
    cut_rows(&all->root, row);
    all->size = before;
    return 0;
}
