/* Arrow columns that are filled value by value, without Python. Decoders of all formats share them.

   A column appends values at its end, and can be cut back to fewer rows: so a record of which one
   value does not fit leaves nothing behind. */

#ifndef JETSPARK_COLUMNS_H
#define JETSPARK_COLUMNS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The numbers are those of kernel.ColumnKind. */
typedef enum {
    BOOLEAN, INT8, INT16, INT32, INT64, FLOAT, DOUBLE, STRING, BINARY,
    DATE,          /* days since 1970 */
    TIMESTAMP,     /* microseconds since 1970, in UTC */
    TIMESTAMP_NTZ, /* the same without a time zone */
    DECIMAL, STRUCT, LIST, MAP,
    NOTHING,       /* always null */
    KINDS,
} ColumnKind;

typedef struct {
    uint8_t *at;
    size_t size, room;
} Bytes;

typedef struct Column {
    ColumnKind kind;
    uint8_t precision, scale; /* of a DECIMAL */
    const uint8_t *name;      /* of a field of a STRUCT */
    size_t name_size;
    uint8_t *key; /* for JSON: the name as `"name":`, and some bytes more */
    size_t key_size;
    size_t first, after; /* for JSON: which field once came first in a STRUCT, and behind this one */
    struct Column *children; /* fields of a STRUCT; the items of a LIST; a STRUCT of key and value of
                                a MAP */
    size_t count;
    size_t item_size; /* of a LIST or MAP: bytes of an item, without those of its texts */
    size_t rows;
    Bytes valid;   /* bits; empty as long as there is no null */
    Bytes values;  /* bits, numbers, or the bytes of texts */
    Bytes offsets; /* of texts, lists and maps: 32 bits each, one more than rows */
} Column;

/* The columns of a batch, and how large they may become together. What can become large from a few
   bytes are the items of lists, each of which has all columns of its type, symbols, and constants:
   they are counted. */
typedef struct {
    Column root; /* a STRUCT: a row is a record */
    size_t size, limit;
    int no_memory, too_large;
} Columns;

/* -- how a column grows ------------------------------------------------------------------------- */

int grow_bytes(Columns *all, Bytes *bytes, size_t more);
int put_first_null(Columns *all, Column *column);

static inline int has_room(const Columns *all) {
    return !all->no_memory && !all->too_large;
}

static inline int grow(Columns *all, Bytes *bytes, size_t more) {
    return bytes->size + more <= bytes->room || grow_bytes(all, bytes, more);
}

static inline int count_items(Columns *all, const Column *column, size_t count) {
    if (count > (all->limit - all->size) / column->item_size) {
        all->too_large = 1;
        return 0;
    }
    all->size += count * column->item_size;
    return 1;
}

/* For bytes that are not a payload's own: symbols, and constants. */
static inline int count_bytes(Columns *all, size_t size) {
    if (size > all->limit - all->size) {
        all->too_large = 1;
        return 0;
    }
    all->size += size;
    return 1;
}

static inline int put_bit(Columns *all, Bytes *bits, size_t row, int bit) {
    if (row % 8 == 0) {
        if (!grow(all, bits, 1))
            return 0;
        bits->at[bits->size++] = 0;
    }
    bits->at[row / 8] |= (uint8_t)(bit << row % 8);
    return 1;
}

static inline int end_row(Columns *all, Column *column, int is_valid) {
    if (column->valid.size == 0) {
        if (!is_valid && !put_first_null(all, column))
            return 0;
    } else if (!put_bit(all, &column->valid, column->rows, is_valid)) {
        return 0;
    }
    column->rows++;
    return 1;
}

static inline int put_offset(Columns *all, Column *column, size_t end) {
    Bytes *offsets = &column->offsets;
    if (!grow(all, offsets, 8))
        return 0;
    if (offsets->size == 0) {
        memset(offsets->at, 0, 4);
        offsets->size = 4;
    }
    int32_t offset = (int32_t)end;
    memcpy(offsets->at + offsets->size, &offset, 4);
    offsets->size += 4;
    return 1;
}

int is_utf8(const uint8_t *at, size_t size);

/* -- values. Each appends one; 0 if there is no room, which `Columns` tells. -------------------- */

int put_null(Columns *all, Column *column);

static inline int put_truth(Columns *all, Column *column, int value) {
    return put_bit(all, &column->values, column->rows, value) && end_row(all, column, 1);
}

static inline int put_fixed(Columns *all, Column *column, const void *value, size_t width) {
    if (!grow(all, &column->values, width))
        return 0;
    memcpy(column->values.at + column->values.size, value, width);
    column->values.size += width;
    return end_row(all, column, 1);
}

/* INT8 to INT64, DATE, times. */
static inline int put_whole(Columns *all, Column *column, int64_t value) {
    int8_t one = (int8_t)value;
    int16_t two = (int16_t)value;
    int32_t four = (int32_t)value;
    switch (column->kind) {
    case INT8:
        return put_fixed(all, column, &one, 1);
    case INT16:
        return put_fixed(all, column, &two, 2);
    case INT32:
    case DATE:
        return put_fixed(all, column, &four, 4);
    default:
        return put_fixed(all, column, &value, 8);
    }
}

/* Units of so many places behind the point; also 0 if they are not exactly a DECIMAL of the column,
   or a day or a time is not of the years 1 to 9999. */
int put_decimal(Columns *all, Column *column, uint64_t high, uint64_t low, int is_negative,
                int places);
int put_time(Columns *all, Column *column, int64_t value);
/* Days since 1970 of a date that there is. */
int64_t days_of(int year, int month, int day);

/* Room for a text of this size, and for 16 bytes more that a copy may touch; `end_text` follows when
   it is there. */
static inline uint8_t *text_room(Columns *all, Column *column, size_t size) {
    if (size > INT32_MAX - column->values.size) {
        all->too_large = 1;
        return NULL;
    }
    return grow(all, &column->values, size + 16) ? column->values.at + column->values.size : NULL;
}

static inline int end_text(Columns *all, Column *column, size_t size) {
    column->values.size += size;
    return put_offset(all, column, column->values.size) && end_row(all, column, 1);
}

/* Copies a text, and returns whether it is ASCII. Most are so short that a call would cost more. */
static inline int copy_text(uint8_t *to, const uint8_t *text, size_t size) {
    uint64_t eight, bits = 0;
    uint32_t four;
    if (size >= 8) {
        for (size_t i = 0;; i = i + 16 <= size ? i + 8 : size - 8) { /* the last ones overlap */
            memcpy(&eight, text + i, 8);
            memcpy(to + i, &eight, 8);
            bits |= eight;
            if (i + 8 == size)
                break;
        }
    } else if (size >= 4) {
        memcpy(&four, text, 4);
        memcpy(to, &four, 4);
        bits = four;
        memcpy(&four, text + size - 4, 4);
        memcpy(to + size - 4, &four, 4);
        bits |= four;
    } else if (size > 0) {
        bits = (to[0] = text[0]) | (to[size / 2] = text[size / 2]) | (to[size - 1] = text[size - 1]);
    }
    return (bits & 0x8080808080808080) == 0;
}

static inline int put_text(Columns *all, Column *column, const uint8_t *text, size_t size) {
    uint8_t *to = text_room(all, column, size);
    if (to == NULL)
        return 0;
    copy_text(to, text, size);
    return end_text(all, column, size);
}

/* Also 0 if it is not UTF-8. */
static inline int put_checked_text(Columns *all, Column *column, const uint8_t *text, size_t size) {
    uint8_t *to = text_room(all, column, size);
    return to != NULL && (copy_text(to, text, size) || is_utf8(text, size)) &&
           end_text(all, column, size);
}

/* After the children have their values. */
static inline int end_list(Columns *all, Column *column) { /* also of a MAP */
    return put_offset(all, column, column->children->rows) && end_row(all, column, 1);
}

static inline int end_struct(Columns *all, Column *column) {
    return end_row(all, column, 1);
}

/* -- columns and texts -------------------------------------------------------------------------- */

/* The bytes of a value, without those of its texts and items. */
size_t value_size(const Column *column);
/* Room for so many rows of what has a size. */
int reserve_rows(Columns *all, Column *column, size_t rows);
void cut_rows(Column *column, size_t rows);
void free_column(Column *column);

static inline size_t items_of(const Column *column, size_t row) {
    int32_t offset;
    memcpy(&offset, column->offsets.at + 4 * row, 4);
    return (size_t)offset;
}

/* Where the items of a row begin that is not ended yet. */
static inline size_t begin_of(const Column *column, size_t row) {
    return column->offsets.size ? items_of(column, row) : 0;
}

#endif
