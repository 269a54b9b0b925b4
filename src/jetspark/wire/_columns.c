/* See _columns.h. */

#include "_columns.h"

#include <stdlib.h>

static int grow(Columns *all, Bytes *bytes, size_t more) {
    if (bytes->room - bytes->size >= more)
        return 1;
    size_t room = 2 * bytes->room + more + 64;
    uint8_t *at = realloc(bytes->at, room);
    if (at == NULL) {
        all->no_memory = 1;
        return 0;
    }
    bytes->at = at;
    bytes->room = room;
    return 1;
}

static int count_size(Columns *all, size_t size) {
    all->size += size;
    if (all->size > all->limit)
        all->too_large = 1;
    return !all->too_large;
}

static int put_bit(Columns *all, Bytes *bits, size_t row, int bit) {
    if (row % 8 == 0) {
        if (!grow(all, bits, 1))
            return 0;
        bits->at[bits->size++] = 0;
    }
    bits->at[row / 8] |= (uint8_t)(bit << row % 8);
    return 1;
}

/* The bit of validity of a new row. */
static int put_valid(Columns *all, Column *column, int bit) {
    if (column->valid.size == 0) {
        if (bit)
            return 1;
        size_t bytes = (column->rows + 7) / 8;
        if (!grow(all, &column->valid, bytes + 1))
            return 0;
        memset(column->valid.at, 0xFF, bytes);
        column->valid.size = bytes;
        if (column->rows % 8)
            column->valid.at[bytes - 1] = (uint8_t)((1 << column->rows % 8) - 1);
    }
    return put_bit(all, &column->valid, column->rows, bit);
}

static int end_row(Columns *all, Column *column, int is_valid) {
    if (!put_valid(all, column, is_valid))
        return 0;
    column->rows++;
    return 1;
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

static int put_offset(Columns *all, Column *column, size_t end) {
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

int put_null(Columns *all, Column *column) {
    static const uint8_t zeros[16] = {0};
    size_t width;
    switch (column->kind) {
    case BOOLEAN:
        if (!count_size(all, 1) || !put_bit(all, &column->values, column->rows, 0))
            return 0;
        break;
    case STRING:
    case BINARY:
        if (!count_size(all, 5) || !put_offset(all, column, column->values.size))
            return 0;
        break;
    case LIST:
    case MAP:
        if (!count_size(all, 5) || !put_offset(all, column, column->children->rows))
            return 0;
        break;
    case STRUCT:
        if (!count_size(all, 1))
            return 0;
        for (size_t i = 0; i < column->count; i++)
            if (!put_null(all, &column->children[i]))
                return 0;
        break;
    default:
        width = width_of(column);
        if (!count_size(all, 1 + width) || !grow(all, &column->values, width))
            return 0;
        memcpy(column->values.at + column->values.size, zeros, width);
        column->values.size += width;
    }
    return end_row(all, column, 0);
}

int put_truth(Columns *all, Column *column, int value) {
    return count_size(all, 1) && put_bit(all, &column->values, column->rows, value) &&
           end_row(all, column, 1);
}

int put_fixed(Columns *all, Column *column, const void *value, size_t width) {
    if (!count_size(all, 1 + width) || !grow(all, &column->values, width))
        return 0;
    memcpy(column->values.at + column->values.size, value, width);
    column->values.size += width;
    return end_row(all, column, 1);
}

int put_whole(Columns *all, Column *column, int64_t value) {
    int8_t one = (int8_t)value;
    int16_t two = (int16_t)value;
    int32_t four = (int32_t)value;
    switch (width_of(column)) {
    case 1:
        return put_fixed(all, column, &one, 1);
    case 2:
        return put_fixed(all, column, &two, 2);
    case 4:
        return put_fixed(all, column, &four, 4);
    default:
        return put_fixed(all, column, &value, 8);
    }
}

uint8_t *text_room(Columns *all, Column *column, size_t size) {
    if (size > INT32_MAX - column->values.size) {
        all->too_large = 1;
        return NULL;
    }
    return grow(all, &column->values, size + 1) ? column->values.at + column->values.size : NULL;
}

int end_text(Columns *all, Column *column, size_t size) {
    column->values.size += size;
    return count_size(all, 5 + size) && put_offset(all, column, column->values.size) &&
           end_row(all, column, 1);
}

int put_text(Columns *all, Column *column, const uint8_t *text, size_t size) {
    uint8_t *to = text_room(all, column, size);
    if (to == NULL)
        return 0;
    if (size)
        memcpy(to, text, size);
    return end_text(all, column, size);
}

int end_list(Columns *all, Column *column) {
    return count_size(all, 5) && put_offset(all, column, column->children->rows) &&
           end_row(all, column, 1);
}

int end_struct(Columns *all, Column *column) {
    return count_size(all, 1) && end_row(all, column, 1);
}

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
    default:
        column->values.size = rows * width_of(column);
    }
    column->rows = rows;
}

void free_column(Column *column) {
    for (size_t i = 0; i < column->count; i++)
        free_column(&column->children[i]);
    free(column->children);
    free(column->valid.at);
    free(column->values.at);
    free(column->offsets.at);
}
