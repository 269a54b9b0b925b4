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
    struct Column *children; /* fields of a STRUCT; the items of a LIST; a STRUCT of key and value of
                                a MAP */
    size_t count;
    size_t rows;
    Bytes valid;   /* bits; empty as long as there is no null */
    Bytes values;  /* bits, numbers, or the bytes of texts */
    Bytes offsets; /* of texts, lists and maps: 32 bits each, one more than rows */
} Column;

/* The columns of a batch, and how large they may become together. */
typedef struct {
    Column root; /* a STRUCT: a row is a record */
    size_t size, limit;
    int no_memory, too_large;
} Columns;

/* Each appends one value; 0 if there is no room, which `Columns` tells. */
int put_null(Columns *all, Column *column);
int put_truth(Columns *all, Column *column, int value);
int put_fixed(Columns *all, Column *column, const void *value, size_t width);
int put_text(Columns *all, Column *column, const uint8_t *text, size_t size);
int put_whole(Columns *all, Column *column, int64_t value); /* INT8 to INT64, DATE, times */
/* Units of so many places behind the point; also 0 if they are not exactly a DECIMAL of the column,
   or a day or a time is not of the years 1 to 9999. */
int put_decimal(Columns *all, Column *column, uint64_t high, uint64_t low, int is_negative,
                int places);
int put_time(Columns *all, Column *column, int64_t value);
/* Room for a text of this size; `end_text` follows when it is there. */
uint8_t *text_room(Columns *all, Column *column, size_t size);
int end_text(Columns *all, Column *column, size_t size);
/* After the children have their values. */
int end_list(Columns *all, Column *column); /* also of a MAP */
int end_struct(Columns *all, Column *column);

void cut_rows(Column *column, size_t rows);
void free_column(Column *column);

/* The bytes of one character of two to four bytes in UTF-8, or 0. */
size_t wide_size(const uint8_t *at, const uint8_t *end);
int is_utf8(const uint8_t *at, size_t size);

static inline int has_room(const Columns *all) {
    return !all->no_memory && !all->too_large;
}

static inline size_t items_of(const Column *column, size_t row) {
    int32_t offset;
    memcpy(&offset, column->offsets.at + 4 * row, 4);
    return (size_t)offset;
}

#endif
