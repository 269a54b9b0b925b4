/* The bytes of a record in Avro or Protobuf, taken from the front. */

#ifndef JETSPARK_READER_H
#define JETSPARK_READER_H

#include "_misfit.h"

typedef struct {
    const uint8_t *at, *end;
    Columns *all;
    Misfit *why;
} Reader;

static int take_long_varint(Reader *r, uint64_t *number) {
    uint64_t sum = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (r->at == r->end)
            return misfit(r->all, r->why, ENDS);
        uint8_t byte = *r->at++;
        if (shift == 63 && byte > 1)
            break;
        sum |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = sum;
            return 1;
        }
    }
    return misfit(r->all, r->why, BAD_NUMBER);
}

static inline int take_varint(Reader *r, uint64_t *number) {
    if (r->end - r->at >= 2) {
        uint32_t low = r->at[0], high = r->at[1];
        if (low < 0x80) {
            *number = low;
            r->at++;
            return 1;
        }
        if (high < 0x80) {
            *number = (low & 0x7F) | high << 7;
            r->at += 2;
            return 1;
        }
    }
    return take_long_varint(r, number);
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

/* Little-endian, whatever this machine is. */
static inline uint64_t bits_of(const uint8_t *bytes, int size) {
    uint64_t bits = 0;
    for (int i = 0; i < size; i++)
        bits |= (uint64_t)bytes[i] << 8 * i;
    return bits;
}

#endif
