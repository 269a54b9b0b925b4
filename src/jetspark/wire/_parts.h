/* Rows of Arrow columns that become records of a format, without Python: the reverse of _columns.h.
   Writers of all formats share it. */

#ifndef JETSPARK_PARTS_H
#define JETSPARK_PARTS_H

#include "_columns.h"

/* A part of each record, and the memory that has its values. */
typedef struct Part {
    int kind;               /* of the format, and so are: */
    int flag;
    uint32_t number;
    size_t begin;           /* the place of row 0 */
    const uint8_t *valid;   /* bits; NULL: nothing is null */
    const uint8_t *first;   /* values; where those of texts and lists begin; branches */
    const uint8_t *second;  /* the bytes of texts; the rows of branches */
    size_t valid_size, first_size, second_size;
    struct Part *children;
    size_t count;
} Part;

/* Appends the record of a row; 0 without memory, or if a row is not there (`too_large`). */
typedef int PutRecord(Columns *all, Bytes *to, const Part *part, size_t row);

static inline int not_there(Columns *all) {
    all->too_large = 1;
    return 0;
}

/* Where an element of so many bytes is; NULL if it is not there. */
static inline const uint8_t *element(Columns *all, const uint8_t *at, size_t size, size_t place,
                                     size_t width) {
    if (place < size / width)
        return at + place * width;
    not_there(all);
    return NULL;
}

static inline int32_t half_of(const uint8_t *at) {
    int32_t number;
    memcpy(&number, at, sizeof number);
    return number;
}

/* The elements from `from` to before `end` of a text or a list. */
static inline int limits(Columns *all, const Part *part, size_t place, size_t *from, size_t *end) {
    const uint8_t *at = element(all, part->first, part->first_size, place + 1, 4);
    if (at == NULL)
        return 0;
    int32_t first = half_of(at - 4), last = half_of(at);
    *from = (size_t)first;
    *end = (size_t)last;
    return (first >= 0 && last >= first) || not_there(all);
}

/* The bytes of a text. */
static inline int text_of(Columns *all, const Part *part, size_t place, const uint8_t **at,
                          size_t *size) {
    size_t from, end;
    if (!limits(all, part, place, &from, &end))
        return 0;
    if (end > part->second_size)
        return not_there(all);
    *at = part->second + from;
    *size = end - from;
    return 1;
}

static inline int put_bytes(Columns *all, Bytes *to, const uint8_t *bytes, size_t size) {
    if (!grow(all, to, size))
        return 0;
    if (size)
        memcpy(to->at + to->size, bytes, size);
    to->size += size;
    return 1;
}

#define MOST_VARINT 10 /* bytes */

static inline size_t write_varint(uint8_t *to, uint64_t number) {
    size_t size = 0;
    for (; number > 0x7F; number >>= 7)
        to[size++] = (uint8_t)(number | 0x80);
    to[size++] = (uint8_t)number;
    return size;
}

static inline int put_varint(Columns *all, Bytes *to, uint64_t number) {
    if (!grow(all, to, MOST_VARINT))
        return 0;
    to->size += write_varint(to->at + to->size, number);
    return 1;
}

/* A number as a varint, by which small negative ones are short. */
static inline uint64_t zigzag(int64_t number) {
    return (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
}

/* Little-endian, whatever this machine is. */
static inline int put_bits(Columns *all, Bytes *to, uint64_t bits, size_t size) {
    if (!grow(all, to, size))
        return 0;
    for (size_t i = 0; i < size; i++)
        to->at[to->size++] = (uint8_t)(bits >> 8 * i);
    return 1;
}

/* The bits of a number of four or eight bytes; the shorter one has its sign. */
static inline int number_of(Columns *all, const Part *part, size_t place, size_t width,
                            int64_t *number) {
    const uint8_t *at = element(all, part->first, part->first_size, place, width);
    if (at == NULL)
        return 0;
    if (width == 4)
        *number = half_of(at);
    else
        memcpy(number, at, sizeof *number);
    return 1;
}

static inline int bit_of(Columns *all, const uint8_t *bits, size_t size, size_t place, int *bit) {
    const uint8_t *at = element(all, bits, size, place / 8, 1);
    *bit = at != NULL && (*at >> place % 8 & 1);
    return at != NULL;
}

#endif
