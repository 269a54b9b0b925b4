/* The bytes of a record in Avro or Protobuf, taken from the front. */

#ifndef JETSPARK_READER_H
#define JETSPARK_READER_H

#include "_misfit.h"
#include "_words.h"

typedef struct {
    const uint8_t *at, *end;
    Columns *all;
    Misfit *why;
} Reader;

#define VARINT_SIZE 10 /* at most */

/* Eight bytes of a varint without their highest bits. */
static inline uint64_t packed(uint64_t bits) {
    bits = (bits & 0x007F007F007F007F) | (bits & 0x7F007F007F007F00) >> 1;
    bits = (bits & 0x00003FFF00003FFF) | (bits & 0x3FFF00003FFF0000) >> 2;
    return (bits & 0x000000000FFFFFFF) | (bits & 0x0FFFFFFF00000000) >> 4;
}

/* The varint that begins here, and where it ends; NULL if it does not end, or has more than 64 bits. */
static const uint8_t *long_varint(const uint8_t *at, const uint8_t *end, uint64_t *number) {
    uint64_t sum = 0;
    if (end - at >= VARINT_SIZE) {
        uint64_t bits = load8(at), ends = ~bits & EACH(0x80);
        if (ends) {
            unsigned last = lowest_bit(ends);
            *number = packed(bits & UINT64_MAX >> (63 - last));
            return at + last / 8 + 1;
        }
        *number = packed(bits) | (uint64_t)(at[8] & 0x7F) << 56;
        if (at[8] < 0x80)
            return at + 9;
        *number |= (uint64_t)at[9] << 63;
        return at[9] > 1 ? NULL : at + 10;
    }
    for (int shift = 0; shift < 64 && at < end; shift += 7) {
        uint8_t byte = *at++;
        if (shift == 63 && byte > 1)
            return NULL;
        sum |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = sum;
            return at;
        }
    }
    return NULL;
}

static inline const uint8_t *varint(const uint8_t *at, const uint8_t *end, uint64_t *number) {
    if (end - at >= 2) {
        uint64_t low = at[0], high = at[1];
        if (low < 0x80) {
            *number = low;
            return at + 1;
        }
        if (high < 0x80) {
            *number = (low & 0x7F) | high << 7;
            return at + 2;
        }
    }
    return long_varint(at, end, number);
}

static int no_varint(Reader *r) {
    const uint8_t *at = r->at;
    while (at < r->end && at - r->at < VARINT_SIZE && *at >= 0x80)
        at++;
    return misfit(r->all, r->why, at == r->end && at - r->at < VARINT_SIZE ? ENDS : BAD_NUMBER);
}

static inline int take_varint(Reader *r, uint64_t *number) {
    const uint8_t *at = varint(r->at, r->end, number);
    if (at == NULL)
        return no_varint(r);
    r->at = at;
    return 1;
}

/* The signed number that a varint stands for where small negative ones are short. */
static inline int64_t signed_of(uint64_t number) {
    return (int64_t)(number >> 1 ^ (~(number & 1) + 1));
}

static inline int take_bytes(Reader *r, size_t size, const uint8_t **bytes) {
    if ((size_t)(r->end - r->at) < size)
        return misfit(r->all, r->why, ENDS);
    *bytes = r->at;
    r->at += size;
    return 1;
}

#endif
