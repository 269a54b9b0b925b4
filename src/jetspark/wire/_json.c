/* See _json.h. */

#include "_json.h"

#include <math.h>
#include <string.h>

#define MOST_DEPTH 32
#define MOST_NAME 1000           /* bytes; Spark's parser has a limit, too */
#define MOST_TEXT ((size_t)1 << 20)
#define MOST_NUMBER 40
#define MOST_TIME 40
#define FIRST_SECOND (-62135596800) /* of the years 1 to 9999 */
#define LAST_SECOND 253402300799

typedef struct {
    const uint8_t *at, *end;
} Cursor;

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

/* Moves behind one character of two to four bytes in UTF-8. */
static int skip_wide(Cursor *c) {
    const uint8_t *at = c->at;
    uint8_t first = at[0];
    int size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (first < 0xC2 || first > 0xF4 || c->end - at < size)
        return 0;
    for (int i = 1; i < size; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    if ((first == 0xE0 && at[1] < 0xA0) || (first == 0xED && at[1] > 0x9F) ||
        (first == 0xF0 && at[1] < 0x90) || (first == 0xF4 && at[1] > 0x8F))
        return 0;
    c->at += size;
    return 1;
}

/* Moves behind a string, from its first quote. */
static int string(Cursor *c, JsonText *text) {
    if (!take(c, '"'))
        return 0;
    size_t saved = 0;
    text->at = c->at;
    while (c->at < c->end) {
        uint8_t byte = *c->at;
        if (byte == '"') {
            text->size = (size_t)(c->at - text->at);
            text->plain = text->size - saved;
            c->at++;
            return text->plain <= MOST_TEXT;
        }
        if (byte < 0x20)
            return 0;
        if (byte >= 0x80) {
            if (!skip_wide(c))
                return 0;
        } else if (byte == '\\') {
            const uint8_t *from = c->at++;
            size_t size = skip_escape(c);
            if (size == 0)
                return 0;
            saved += (size_t)(c->at - from) - size;
        } else {
            c->at++;
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

void json_plain(const JsonText *text, uint8_t *to) {
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

static int whole_of(const Number *n, int64_t most, int64_t *value) {
    if (n->dots || n->has_exponent || n->digits > 18 || (n->negative && n->mantissa == 0))
        return 0;
    int64_t found = (int64_t)n->mantissa;
    if (found > most + n->negative)
        return 0;
    *value = n->negative ? -found : found;
    return 1;
}

static int real_of(const Number *n, JsonReal real, double *value) {
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (n->negative && n->mantissa == 0 && !n->dots && !n->has_exponent)
        return 0; /* a whole number, whose zero has no sign */
    if (!n->dots && !n->has_exponent && n->digits > 15)
        return 0; /* a whole number that a double may not have */
    int power = n->exponent - n->dots;
    if (n->digits + n->dots <= 15 && power >= -22 && power <= 22) {
        /* Both are exact, so the one rounding gives the nearest. */
        double found = (double)n->mantissa;
        found = power < 0 ? found / tens[-power] : found * tens[power];
        *value = n->negative ? -found : found;
        return 1;
    }
    char text[MOST_NUMBER + 1];
    memcpy(text, n->at, n->size);
    text[n->size] = 0;
    *value = real(text);
    return isfinite(*value);
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
    /* Years from March on, so that the leap day is their last one. */
    int64_t from = month > 2 ? year : year - 1;
    int64_t months = month > 2 ? month - 3 : month + 9;
    *days = from * 365 + from / 4 - from / 100 + from / 400 + (months * 153 + 2) / 5 + day - 719469;
    return 1;
}

/* Takes 2026-01-31T12:00:00.123456Z, or another offset; microseconds since 1970. */
static int instant(Cursor *c, int64_t *micros) {
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
    if (!take(c, 'Z')) {
        int sign = take(c, '+') ? 1 : take(c, '-') ? -1 : 0;
        int over, more;
        if (sign == 0 || !digits(c, 2, &over) || !take(c, ':') || !digits(c, 2, &more) ||
            over > 17 || more > 59)
            return 0;
        offset = sign * (over * 60 + more) * 60;
    }
    int64_t second = days * 86400 + hours * 3600 + minutes * 60 + seconds - offset;
    if (second < FIRST_SECOND || second > LAST_SECOND)
        return 0;
    *micros = second * 1000000 + fraction;
    return 1;
}

/* A string that is a date or a time as a whole. */
static int time_value(Cursor *c, JsonKind kind, int64_t *value) {
    JsonText text;
    uint8_t plain[MOST_TIME];
    if (!string(c, &text) || text.plain > sizeof plain)
        return 0;
    json_plain(&text, plain);
    Cursor inside = {plain, plain + text.plain};
    return (kind == DAY ? date(&inside, value) : instant(&inside, value)) &&
           inside.at == inside.end;
}

/* -- values ------------------------------------------------------------------------------------- */

static int skip_value(Cursor *c, int depth) {
    JsonText text;
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

/* Of a whole number, of true and of false the text is what is written. */
static int text_value(Cursor *c, JsonText *text) {
    Number n;
    int64_t whole;
    const uint8_t *from = c->at;
    if (from < c->end && *from == '"')
        return string(c, text);
    if (!take_word(c, "true", 4) && !take_word(c, "false", 5) &&
        !(number(c, &n) && whole_of(&n, INT64_MAX - 1, &whole)))
        return 0;
    text->at = from;
    text->size = text->plain = (size_t)(c->at - from);
    return 1;
}

static int field_value(Cursor *c, JsonField *field, JsonReal real) {
    static const int64_t most[KINDS] = {[INT8] = INT8_MAX, [INT16] = INT16_MAX,
                                        [INT32] = INT32_MAX, [INT64] = INT64_MAX - 1};
    Number n;
    if (field->state != ABSENT)
        return 0; /* twice */
    if (take_word(c, "null", 4)) {
        field->state = NOTHING;
        return 1;
    }
    field->state = VALUE;
    switch (field->kind) {
    case TEXT:
        return text_value(c, &field->text);
    case TRUTH:
        field->whole = take_word(c, "true", 4);
        return field->whole || take_word(c, "false", 5);
    case DAY:
    case TIME:
        return time_value(c, field->kind, &field->whole);
    case DOUBLE:
        return number(c, &n) && real_of(&n, real, &field->real);
    default:
        return number(c, &n) && whole_of(&n, most[field->kind], &field->whole);
    }
}

static JsonField *field_named(const uint8_t *name, size_t size, JsonField *fields, size_t count,
                          size_t *next) {
    for (size_t i = 0; i < count; i++) {
        /* Objects mostly have their members in the same order. */
        size_t index = *next + i < count ? *next + i : *next + i - count;
        JsonField *field = &fields[index];
        if (field->name_size == size && memcmp(field->name, name, size) == 0) {
            *next = index + 1 < count ? index + 1 : 0;
            return field;
        }
    }
    return NULL;
}

int json_object(const uint8_t *at, size_t size, JsonField *fields, size_t count, JsonReal real) {
    Cursor c = {at, at + size};
    JsonText name;
    uint8_t plain[MOST_NAME];
    size_t next = 0;
    for (size_t i = 0; i < count; i++)
        fields[i].state = ABSENT;
    skip_space(&c);
    if (!take(&c, '{'))
        return 0;
    skip_space(&c);
    if (!take(&c, '}')) {
        do {
            skip_space(&c);
            if (!string(&c, &name) || name.plain > MOST_NAME)
                return 0;
            if (name.plain < name.size) {
                json_plain(&name, plain);
                name.at = plain;
            }
            skip_space(&c);
            if (!take(&c, ':'))
                return 0;
            skip_space(&c);
            JsonField *field = field_named(name.at, name.plain, fields, count, &next);
            if (!(field ? field_value(&c, field, real) : skip_value(&c, 1)))
                return 0;
            skip_space(&c);
        } while (take(&c, ','));
        if (!take(&c, '}'))
            return 0;
    }
    skip_space(&c);
    return c.at == c.end;
}
