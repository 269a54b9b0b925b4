/* What JSON is written in: white space, punctuation and strings.

   Each function takes a place in a payload, which is not behind its end, and returns the place
   behind what it has read, or NULL if that is not there. There are AHEAD bytes behind the end. */

#ifndef JETSPARK_JSON_TEXT_H
#define JETSPARK_JSON_TEXT_H

#include "_columns.h"
#include "_words.h"

/* A string, between its quotes. */
typedef struct {
    const uint8_t *at;
    size_t size;
    size_t plain; /* bytes without its escapes */
} Text;

static inline const uint8_t *skip_space(const uint8_t *at, const uint8_t *end) {
    if (*at > ' ')
        return at;
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r'))
        at++;
    return at;
}

/* Whether this byte comes next. */
static inline int is_next(const uint8_t *at, const uint8_t *end, uint8_t byte) {
    return at < end && *at == byte;
}

/* Moves behind a value's white space, and the comma before the next value; whether there is one. */
static inline int take_comma(const uint8_t **at, const uint8_t *end) {
    *at = skip_space(*at, end);
    int is_comma = is_next(*at, end, ',');
    *at += is_comma;
    return is_comma;
}

static inline const uint8_t *take_word(const uint8_t *at, const uint8_t *end, const char *word,
                                       size_t size) {
    return (size_t)(end - at) >= size && memcmp(at, word, size) == 0 ? at + size : NULL;
}

static inline int is_digit(uint8_t byte) {
    return byte >= '0' && byte <= '9';
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

/* Behind an escape, from behind its backslash; surrogates only in pairs. `size`: of its character
   in UTF-8. */
static const uint8_t *skip_escape(const uint8_t *at, const uint8_t *end, size_t *size) {
    if (at == end)
        return NULL;
    *size = 1;
    uint8_t byte = *at++;
    if (byte != 'u')
        return byte == '"' || byte == '\\' || byte == '/' || byte == 'b' || byte == 'f' ||
                       byte == 'n' || byte == 'r' || byte == 't'
                   ? at
                   : NULL;
    unsigned unit, low;
    if (!hex4(at, end, &unit))
        return NULL;
    at += 4;
    if (unit < 0xD800 || unit > 0xDFFF) {
        *size = utf8_size(unit);
        return at;
    }
    if (unit > 0xDBFF || end - at < 6 || at[0] != '\\' || at[1] != 'u' || !hex4(at + 2, end, &low) ||
        low < 0xDC00 || low > 0xDFFF)
        return NULL;
    *size = 4;
    return at + 6;
}

/* Behind a string with escapes, or with more than ASCII, from the first of them. */
static NOT_INLINE const uint8_t *any_string(const uint8_t *at, const uint8_t *end, Text *text) {
    size_t saved = 0, size;
    while (at < end) {
        unsigned count = count_plain(at, 0);
        if (count == 16) {
            at += 16;
            continue;
        }
        at += count;
        if (is_next(at, end, '"')) {
            text->size = (size_t)(at - text->at);
            text->plain = text->size - saved;
            return is_utf8(text->at, text->size) ? at + 1 : NULL;
        }
        const uint8_t *from = at;
        if (!is_next(at, end, '\\') || (at = skip_escape(at + 1, end, &size)) == NULL)
            return NULL;
        saved += (size_t)(at - from) - size;
    }
    return NULL;
}

static inline const uint8_t *string(const uint8_t *at, const uint8_t *end, Text *text) {
    if (*at != '"')
        return NULL;
    const uint8_t *from = ++at;
    unsigned count;
    while ((count = count_plain(at, 1)) == 16 && at < end)
        at += 16;
    at += count;
    if (is_next(at, end, '"')) {
        *text = (Text){from, (size_t)(at - from), (size_t)(at - from)};
        return at + 1;
    }
    Text other = {.at = from};
    at = any_string(at, end, &other);
    *text = other;
    return at;
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

/* Writes a text without its escapes, and up to 16 bytes behind it. */
static void unescape(const Text *text, uint8_t *to) {
    const uint8_t *at = text->at, *end = at + text->size;
    if (text->plain == text->size && text->size > 0) {
        memcpy(to, at, text->size);
        return;
    }
    while (at < end) {
        if (*at != '\\') {
            memcpy(to, at, 16);
            unsigned count = count_plain(at, 0); /* a quote is behind the text */
            at += count;
            to += count;
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

#endif
