/* See _columns.h. */

#include "_columns.h"

#include <stdlib.h>

int grow_bytes(Columns *all, Bytes *bytes, size_t more) {
    size_t room = bytes->room + bytes->room / 2;
    if (room < bytes->size + more)
        room = bytes->size + more;
    room += 64;
    uint8_t *at = realloc(bytes->at, room);
    if (at == NULL) {
        all->no_memory = 1;
        return 0;
    }
    bytes->at = at;
    bytes->room = room;
    return 1;
}

int put_first_null(Columns *all, Column *column) {
    size_t bytes = (column->rows + 7) / 8;
    if (!grow(all, &column->valid, bytes + 1))
        return 0;
    memset(column->valid.at, 0xFF, bytes);
    column->valid.size = bytes;
    if (column->rows % 8)
        column->valid.at[bytes - 1] = (uint8_t)((1 << column->rows % 8) - 1);
    return put_bit(all, &column->valid, column->rows, 0);
}

static size_t width_of(const Column *column) {
    switch (column->kind) {
    case INT8:
        return 1;
    case INT16:
        return 2;
    case INT32:
    case FLOAT:
    case DATE:
        return 4;
    case DECIMAL:
        return 16;
    default:
        return 8;
    }
}

size_t value_size(const Column *column) {
    size_t size = 1;
    switch (column->kind) {
    case NOTHING:
    case BOOLEAN:
        return 1;
    case STRING:
    case BINARY:
    case LIST:
    case MAP:
        return 5;
    case STRUCT:
        for (size_t i = 0; i < column->count; i++)
            size += value_size(&column->children[i]);
        return size;
    default:
        return 1 + width_of(column);
    }
}

int reserve_rows(Columns *all, Column *column, size_t rows) {
    switch (column->kind) {
    case NOTHING:
        return 1;
    case BOOLEAN:
        return grow(all, &column->values, rows / 8 + 1);
    case STRING:
    case BINARY:
    case LIST:
    case MAP:
        return grow(all, &column->offsets, 4 * rows + 8);
    case STRUCT:
        for (size_t i = 0; i < column->count; i++)
            if (!reserve_rows(all, &column->children[i], rows))
                return 0;
        return 1;
    default:
        return grow(all, &column->values, rows * width_of(column));
    }
}

int put_null(Columns *all, Column *column) {
    static const uint8_t zeros[16] = {0};
    size_t width;
    switch (column->kind) {
    case NOTHING:
        column->rows++;
        return 1;
    case BOOLEAN:
        if (!put_bit(all, &column->values, column->rows, 0))
            return 0;
        break;
    case STRING:
    case BINARY:
        if (!put_offset(all, column, column->values.size))
            return 0;
        break;
    case LIST:
    case MAP:
        if (!put_offset(all, column, column->children->rows))
            return 0;
        break;
    case STRUCT:
        for (size_t i = 0; i < column->count; i++)
            if (!put_null(all, &column->children[i]))
                return 0;
        break;
    default:
        width = width_of(column);
        if (!grow(all, &column->values, width))
            return 0;
        memcpy(column->values.at + column->values.size, zeros, width);
        column->values.size += width;
    }
    return end_row(all, column, 0);
}

/* -- decimals and times --------------------------------------------------------------------------- */

#define MOST_DIGITS 38

static const uint64_t tens[MOST_DIGITS + 1][2] = {
    {0, 0x1U}, {0, 0xaU}, {0, 0x64U}, {0, 0x3e8U}, {0, 0x2710U}, {0, 0x186a0U}, {0, 0xf4240U},
    {0, 0x989680U}, {0, 0x5f5e100U}, {0, 0x3b9aca00U}, {0, 0x2540be400U}, {0, 0x174876e800U},
    {0, 0xe8d4a51000U}, {0, 0x9184e72a000U}, {0, 0x5af3107a4000U}, {0, 0x38d7ea4c68000U},
    {0, 0x2386f26fc10000U}, {0, 0x16345785d8a0000U}, {0, 0xde0b6b3a7640000U},
    {0, 0x8ac7230489e80000U}, {0x5U, 0x6bc75e2d63100000U}, {0x36U, 0x35c9adc5dea00000U},
    {0x21eU, 0x19e0c9bab2400000U}, {0x152dU, 0x2c7e14af6800000U}, {0xd3c2U, 0x1bcecceda1000000U},
    {0x84595U, 0x161401484a000000U}, {0x52b7d2U, 0xdcc80cd2e4000000U},
    {0x33b2e3cU, 0x9fd0803ce8000000U}, {0x204fce5eU, 0x3e25026110000000U},
    {0x1431e0faeU, 0x6d7217caa0000000U}, {0xc9f2c9cd0U, 0x4674edea40000000U},
    {0x7e37be2022U, 0xc0914b2680000000U}, {0x4ee2d6d415bU, 0x85acef8100000000U},
    {0x314dc6448d93U, 0x38c15b0a00000000U}, {0x1ed09bead87c0U, 0x378d8e6400000000U},
    {0x13426172c74d82U, 0x2b878fe800000000U}, {0xc097ce7bc90715U, 0xb34b9f1000000000U},
    {0x785ee10d5da46d9U, 0xf436a000000000U}, {0x4b3b4ca85a86c47aU, 0x98a224000000000U},
};

static int is_less(uint64_t high, uint64_t low, const uint64_t than[2]) {
    return high < than[0] || (high == than[0] && low < than[1]);
}

/* Divides by ten; returns the rest. */
static unsigned divide(uint64_t *high, uint64_t *low) {
    uint64_t parts[4] = {*high >> 32, *high & 0xFFFFFFFF, *low >> 32, *low & 0xFFFFFFFF}, rest = 0;
    for (int i = 0; i < 4; i++) {
        uint64_t part = rest << 32 | parts[i];
        parts[i] = part / 10;
        rest = part % 10;
    }
    *high = parts[0] << 32 | parts[1];
    *low = parts[2] << 32 | parts[3];
    return (unsigned)rest;
}

int put_decimal(Columns *all, Column *column, uint64_t high, uint64_t low, int is_negative,
                int places) {
    if (high == 0 && low == 0)
        places = column->scale;
    for (; places > column->scale; places--)
        if (divide(&high, &low) != 0)
            return 0;
    for (; places < column->scale; places++) {
        if (!is_less(high, low, tens[MOST_DIGITS - 1]))
            return 0;
        uint64_t below = (low & 0xFFFFFFFF) * 10, above = (low >> 32) * 10 + (below >> 32);
        high = high * 10 + (above >> 32);
        low = above << 32 | (below & 0xFFFFFFFF);
    }
    if (column->precision > MOST_DIGITS || !is_less(high, low, tens[column->precision]))
        return 0;
    if (is_negative) {
        low = ~low + 1;
        high = ~high + (low == 0);
    }
    const uint16_t one = 1;
    int is_little = *(const uint8_t *)&one;
    uint64_t words[2];
    words[!is_little] = low;
    words[is_little] = high;
    return put_fixed(all, column, words, sizeof words);
}

#define FIRST_DAY (-719162) /* of the years 1 to 9999 */
#define LAST_DAY 2932896
#define DAY_MICROS 86400000000

int put_time(Columns *all, Column *column, int64_t value) {
    int64_t unit = column->kind == DATE ? 1 : DAY_MICROS;
    return value >= FIRST_DAY * unit && value < (LAST_DAY + 1) * unit &&
           put_whole(all, column, value);
}

int64_t days_of(int year, int month, int day) {
    /* Years from March on, so that the leap day is their last one. */
    int64_t from = month > 2 ? year : year - 1;
    int64_t months = month > 2 ? month - 3 : month + 9;
    return from * 365 + from / 4 - from / 100 + from / 400 + (months * 153 + 2) / 5 + day - 719469;
}

/* -- UTF-8 --------------------------------------------------------------------------------------- */

static int is_tail(uint8_t byte) {
    return (byte & 0xC0) == 0x80;
}

/* The bytes of one character of two to four bytes, or 0. */
static inline ptrdiff_t wide_size(const uint8_t *at, ptrdiff_t size) {
    uint8_t first = at[0];
    if (first < 0xE0)
        return first >= 0xC2 && size >= 2 && is_tail(at[1]) ? 2 : 0;
    if (first < 0xF0)
        return size >= 3 && is_tail(at[1]) && is_tail(at[2]) && (first > 0xE0 || at[1] >= 0xA0) &&
                       (first != 0xED || at[1] < 0xA0)
                   ? 3
                   : 0;
    return first <= 0xF4 && size >= 4 && is_tail(at[1]) && is_tail(at[2]) && is_tail(at[3]) &&
                   (first > 0xF0 || at[1] >= 0x90) && (first < 0xF4 || at[1] < 0x90)
               ? 4
               : 0;
}

int is_utf8(const uint8_t *at, size_t size) {
    const uint8_t *end = at + size;
    while (at < end) {
        uint64_t eight;
        if (*at >= 0x80) {
            ptrdiff_t wide = wide_size(at, end - at);
            if (wide == 0)
                return 0;
            at += wide;
        } else if (end - at >= 8 && (memcpy(&eight, at, 8), (eight & 0x8080808080808080) == 0)) {
            at += 8;
        } else {
            at++;
        }
    }
    return 1;
}

/* -- cutting back ---------------------------------------------------------------------------------- */

static void cut_bits(Bytes *bits, size_t rows) {
    if (bits->size <= rows / 8)
        return;
    bits->size = (rows + 7) / 8;
    if (rows % 8)
        bits->at[rows / 8] &= (uint8_t)((1 << rows % 8) - 1);
}

void cut_rows(Column *column, size_t rows) {
    /* A value that was not ended has bytes but no row. */
    cut_bits(&column->valid, rows);
    switch (column->kind) {
    case BOOLEAN:
        cut_bits(&column->values, rows);
        break;
    case STRING:
    case BINARY:
    case LIST:
    case MAP:
        if (column->offsets.size) {
            column->offsets.size = 4 * (rows + 1);
            size_t end = items_of(column, rows);
            if (column->count)
                cut_rows(column->children, end);
            else
                column->values.size = end;
        } else if (column->count) {
            cut_rows(column->children, 0);
        } else {
            column->values.size = 0;
        }
        break;
    case STRUCT:
        for (size_t i = 0; i < column->count; i++)
            cut_rows(&column->children[i], rows);
        break;
    case NOTHING:
        break;
    default:
        column->values.size = rows * width_of(column);
    }
    column->rows = rows;
}

void free_column(Column *column) {
    for (size_t i = 0; i < column->count; i++)
        free_column(&column->children[i]);
    free(column->children);
    free(column->key);
    free(column->valid.at);
    free(column->values.at);
    free(column->offsets.at);
}
