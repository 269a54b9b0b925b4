/* See _avro.h. */

#include "_avro.h"

#include <stdio.h>

typedef struct {
    const uint8_t *at, *end;
    Columns *all;
    AvroMisfit *why;
} Reader;

static int value(Reader *r, const AvroNode *node);

/* -- why a datum does not fit ------------------------------------------------------------------- */

static int misfit(Reader *r, AvroProblem problem, const AvroNode *node) {
    if (has_room(r->all) && r->why->problem == AVRO_FITS) {
        r->why->problem = problem;
        r->why->node = node;
    }
    return 0;
}

/* Puts a part of the path before what is there. */
static int below(Reader *r, const char *part, size_t size) {
    AvroMisfit *why = r->why;
    if (size <= AVRO_PATH - why->path_size) {
        why->path_size += size;
        memcpy(why->path + AVRO_PATH - why->path_size, part, size);
    }
    return 0;
}

static int below_field(Reader *r, const AvroNode *field) {
    below(r, (const char *)field->name, field->name_size);
    return below(r, ".", 1);
}

static int below_item(Reader *r, size_t number) {
    char part[24];
    return below(r, part, (size_t)snprintf(part, sizeof part, "[%zu]", number));
}

/* -- numbers ------------------------------------------------------------------------------------ */

static int take_any_long(Reader *r, const AvroNode *node, int64_t *number) {
    uint64_t sum = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (r->at == r->end)
            return misfit(r, AVRO_ENDS, node);
        uint8_t byte = *r->at++;
        if (shift == 63 && byte > 1)
            return misfit(r, AVRO_BAD_NUMBER, node);
        sum |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = (int64_t)(sum >> 1 ^ (~(sum & 1) + 1));
            return 1;
        }
    }
    return misfit(r, AVRO_BAD_NUMBER, node);
}

static inline int take_long(Reader *r, const AvroNode *node, int64_t *number) {
    if (r->end - r->at >= 2) {
        uint32_t low = r->at[0], high = r->at[1];
        if (low < 0x80) {
            *number = (int32_t)(low >> 1) ^ -(int32_t)(low & 1);
            r->at++;
            return 1;
        }
        if (high < 0x80) {
            low = (low & 0x7F) | high << 7;
            *number = (int32_t)(low >> 1) ^ -(int32_t)(low & 1);
            r->at += 2;
            return 1;
        }
    }
    return take_any_long(r, node, number);
}

static int take_bytes(Reader *r, const AvroNode *node, size_t size, const uint8_t **bytes) {
    if ((size_t)(r->end - r->at) < size)
        return misfit(r, AVRO_ENDS, node);
    *bytes = r->at;
    r->at += size;
    return 1;
}

static int converted(Reader *r, const AvroNode *node, int64_t number);

static inline int whole_value(Reader *r, const AvroNode *node) {
    int64_t number;
    if (!take_long(r, node, &number))
        return 0;
    if (node->kind == AVRO_INT && (number < INT32_MIN || number > INT32_MAX))
        return misfit(r, AVRO_BAD_NUMBER, node);
    Column *column = node->column;
    if (column == NULL)
        return 1;
    int32_t half = (int32_t)number;
    if (column->kind == INT32)
        return put_fixed(r->all, column, &half, sizeof half);
    if (column->kind == INT64)
        return put_fixed(r->all, column, &number, sizeof number);
    return converted(r, node, number);
}

/* A whole number in a column of another type. */
static int converted(Reader *r, const AvroNode *node, int64_t number) {
    Column *column = node->column;
    float single;
    double real;
    switch (column->kind) {
    case FLOAT:
        single = (float)number;
        return put_fixed(r->all, column, &single, sizeof single);
    case DOUBLE:
        real = (double)number;
        return put_fixed(r->all, column, &real, sizeof real);
    case DATE:
    case TIMESTAMP:
    case TIMESTAMP_NTZ:
        if (node->is_millis) {
            if (number < INT64_MIN / 1000 || number > INT64_MAX / 1000)
                return misfit(r, AVRO_NO_TIME, node);
            number *= 1000;
        }
        return put_time(r->all, column, number) || misfit(r, AVRO_NO_TIME, node);
    default:
        return 0; /* never: `has_right_column` */
    }
}

/* Little-endian, whatever this machine is. */
static uint64_t bits_of(const uint8_t *bytes, int size) {
    uint64_t bits = 0;
    for (int i = 0; i < size; i++)
        bits |= (uint64_t)bytes[i] << 8 * i;
    return bits;
}

static int real_value(Reader *r, const AvroNode *node) {
    const uint8_t *bytes;
    Column *column = node->column;
    int size = node->kind == AVRO_FLOAT ? 4 : 8;
    if (!take_bytes(r, node, (size_t)size, &bytes))
        return 0;
    if (column == NULL)
        return 1;
    uint64_t bits = bits_of(bytes, size);
    uint32_t half = (uint32_t)bits;
    float single;
    double real;
    memcpy(&single, &half, sizeof single);
    if (column->kind == FLOAT)
        return put_fixed(r->all, column, &single, sizeof single);
    memcpy(&real, &bits, sizeof real);
    if (node->kind == AVRO_FLOAT)
        real = single;
    return put_fixed(r->all, column, &real, sizeof real);
}

/* -- bytes -------------------------------------------------------------------------------------- */

/* A number in two's complement, of which the first byte is the highest. */
static int decimal_value(Reader *r, const AvroNode *node, const uint8_t *bytes, size_t size) {
    int is_negative = size > 0 && bytes[0] >= 0x80;
    uint8_t sign = is_negative ? 0xFF : 0;
    for (; size > 16; size--)
        if (*bytes++ != sign)
            return misfit(r, AVRO_NO_DECIMAL, node);
    uint64_t words[2] = {is_negative ? UINT64_MAX : 0, is_negative ? UINT64_MAX : 0};
    for (size_t i = 0; i < size; i++) {
        words[0] = words[0] << 8 | words[1] >> 56;
        words[1] = words[1] << 8 | bytes[i];
    }
    if ((words[0] >> 63) != (uint64_t)is_negative)
        return misfit(r, AVRO_NO_DECIMAL, node);
    if (is_negative) {
        words[1] = ~words[1] + 1;
        words[0] = ~words[0] + (words[1] == 0);
    }
    return put_decimal(r->all, node->column, words[0], words[1], is_negative, node->scale) ||
           misfit(r, AVRO_NO_DECIMAL, node);
}

static inline int bytes_value(Reader *r, const AvroNode *node) {
    const uint8_t *bytes;
    int64_t size = node->size;
    if (node->kind == AVRO_BYTES) {
        if (!take_long(r, node, &size))
            return 0;
        if (size < 0)
            return misfit(r, AVRO_BAD_SIZE, node);
    }
    if (!take_bytes(r, node, (size_t)size, &bytes))
        return 0;
    if (node->column == NULL)
        return 1;
    if (node->column->kind == DECIMAL)
        return decimal_value(r, node, bytes, (size_t)size);
    if (node->column->kind == STRING && !is_utf8(bytes, (size_t)size))
        return misfit(r, AVRO_NO_UTF8, node);
    return put_text(r->all, node->column, bytes, (size_t)size);
}

static int enum_value(Reader *r, const AvroNode *node) {
    int64_t number;
    if (!take_long(r, node, &number))
        return 0;
    if (number < 0 || (uint64_t)number >= node->count)
        return misfit(r, AVRO_NO_SYMBOL, node);
    const AvroNode *symbol = &node->children[number];
    if (node->column == NULL)
        return 1;
    if (symbol->kind == AVRO_REFUSED)
        return misfit(r, AVRO_NOT_TAKEN, symbol);
    return put_text(r->all, node->column, symbol->name, symbol->name_size);
}

/* -- what has others in it ---------------------------------------------------------------------- */

static int constant_value(Reader *r, const AvroNode *node) {
    Reader inside = {node->constant, node->constant + node->constant_size, r->all, r->why};
    return value(&inside, node);
}

/* A field, mostly one of a simple type or null. */
static inline int field_value(Reader *r, const AvroNode *node) {
    if (node->is_nullable && r->at < r->end && *r->at <= 2 && *r->at % 2 == 0) {
        node = &node->children[*r->at++ / 2];
        if (node->kind == AVRO_NULL && node->column)
            return put_null(r->all, node->column);
    }
    if (node->kind == AVRO_LONG || node->kind == AVRO_INT)
        return whole_value(r, node);
    return node->kind == AVRO_BYTES ? bytes_value(r, node) : value(r, node);
}

static int record_value(Reader *r, const AvroNode *node) {
    for (size_t i = 0; i < node->count; i++)
        if (!field_value(r, &node->children[i]))
            return below_field(r, &node->children[i]);
    if (node->column == NULL)
        return 1;
    for (size_t i = node->count; i < node->count + node->constants; i++)
        if (!constant_value(r, &node->children[i]))
            return below_field(r, &node->children[i]);
    return end_struct(r->all, node->column);
}

/* Items of an array, or entries of a map, in blocks. */
static int blocks_value(Reader *r, const AvroNode *node) {
    const AvroNode *item = &node->children[0];
    Column *entries = node->kind == AVRO_MAP && node->column ? node->column->children : NULL;
    size_t number = 0;
    for (;;) {
        int64_t count, size;
        if (!take_long(r, node, &count))
            return 0;
        if (count == 0)
            break;
        if (count < 0) {
            if (!take_long(r, node, &size))
                return 0;
            if (count == INT64_MIN || size < 0 || size > r->end - r->at)
                return misfit(r, AVRO_BAD_SIZE, node);
            count = -count;
        }
        if (count > r->end - r->at) /* each has a byte at least */
            return misfit(r, AVRO_ENDS, node);
        if (node->column && !count_items(r->all, node->column, (size_t)count))
            return 0;
        for (; count > 0; count--, number++) {
            const uint8_t *key;
            if (node->kind == AVRO_MAP) {
                if (!take_long(r, node, &size))
                    return below_item(r, number);
                if (size < 0)
                    return misfit(r, AVRO_BAD_SIZE, node), below_item(r, number);
                if (!take_bytes(r, node, (size_t)size, &key))
                    return below_item(r, number);
                if (entries) {
                    if (!is_utf8(key, (size_t)size))
                        return misfit(r, AVRO_NO_UTF8, node), below_item(r, number);
                    if (!put_text(r->all, &entries->children[0], key, (size_t)size))
                        return 0;
                }
            }
            if (!value(r, item))
                return below_item(r, number);
            if (entries && !end_struct(r->all, entries))
                return 0;
        }
    }
    return node->column == NULL || end_list(r->all, node->column);
}

/* A value that is one member of a STRUCT, of which the others are null. */
static int member_value(Reader *r, const AvroNode *node, const AvroNode *branch) {
    Column *column = node->column;
    if (branch->kind == AVRO_REFUSED)
        return misfit(r, AVRO_NOT_TAKEN, branch);
    if (column == NULL || branch->member < 0)
        return value(r, branch);
    for (size_t i = 0; i < column->count; i++)
        if (i != (size_t)branch->member && !put_null(r->all, &column->children[i]))
            return 0;
    return value(r, branch) && end_struct(r->all, column);
}

static int union_value(Reader *r, const AvroNode *node) {
    int64_t number;
    if (!take_long(r, node, &number))
        return 0;
    if (number < 0 || (uint64_t)number >= node->count)
        return misfit(r, AVRO_NO_BRANCH, node);
    return member_value(r, node, &node->children[number]);
}

static int value(Reader *r, const AvroNode *node) {
    switch (node->kind) {
    case AVRO_NULL:
        return node->column == NULL || put_null(r->all, node->column);
    case AVRO_BOOLEAN:
        if (r->at == r->end)
            return misfit(r, AVRO_ENDS, node);
        if (*r->at > 1)
            return misfit(r, AVRO_BAD_BOOLEAN, node);
        int truth = *r->at++;
        return node->column == NULL || put_truth(r->all, node->column, truth);
    case AVRO_INT:
    case AVRO_LONG:
        return whole_value(r, node);
    case AVRO_FLOAT:
    case AVRO_DOUBLE:
        return real_value(r, node);
    case AVRO_BYTES:
    case AVRO_FIXED:
        return bytes_value(r, node);
    case AVRO_ENUM:
        return enum_value(r, node);
    case AVRO_RECORD:
        return record_value(r, node);
    case AVRO_ARRAY:
    case AVRO_MAP:
        return blocks_value(r, node);
    case AVRO_UNION:
        return union_value(r, node);
    case AVRO_BRANCH:
        return member_value(r, node, &node->children[0]);
    default:
        return misfit(r, AVRO_NOT_TAKEN, node);
    }
}

int avro_row(Columns *all, const AvroNode *root, const uint8_t *at, size_t size, AvroMisfit *why) {
    Reader r = {at, at + size, all, why};
    size_t row = all->root.rows, before = all->size;
    why->problem = AVRO_FITS;
    why->path_size = 0;
    if (value(&r, root) && (r.at == r.end || misfit(&r, AVRO_LEFT_OVER, root)))
        return 1;
    cut_rows(&all->root, row);
    all->size = before;
    return 0;
}
