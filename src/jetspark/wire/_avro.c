/* See _avro.h. */

#include "_avro.h"

#include "_reader.h"

static int value(Reader *r, const AvroNode *node);

/* Of a branch or a symbol. */
static int not_taken(Reader *r, const AvroNode *node) {
    r->why->why = node->name;
    r->why->why_size = node->name_size;
    return misfit(r->all, r->why, NOT_TAKEN);
}

/* -- numbers ------------------------------------------------------------------------------------ */

static inline int take_long(Reader *r, int64_t *number) {
    uint64_t bits;
    if (!take_varint(r, &bits))
        return 0;
    *number = signed_of(bits);
    return 1;
}

static int converted(Reader *r, const AvroNode *node, int64_t number);

static inline int whole_value(Reader *r, const AvroNode *node) {
    int64_t number;
    if (!take_long(r, &number))
        return 0;
    if (node->kind == AVRO_INT && (number < INT32_MIN || number > INT32_MAX))
        return misfit(r->all, r->why, BAD_NUMBER);
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
                return misfit(r->all, r->why, NO_TIME);
            number *= 1000;
        }
        return put_time(r->all, column, number) || misfit(r->all, r->why, NO_TIME);
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
    if (!take_bytes(r, (size_t)size, &bytes))
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
            return misfit(r->all, r->why, NO_DECIMAL);
    uint64_t words[2] = {is_negative ? UINT64_MAX : 0, is_negative ? UINT64_MAX : 0};
    for (size_t i = 0; i < size; i++) {
        words[0] = words[0] << 8 | words[1] >> 56;
        words[1] = words[1] << 8 | bytes[i];
    }
    if ((words[0] >> 63) != (uint64_t)is_negative)
        return misfit(r->all, r->why, NO_DECIMAL);
    if (is_negative) {
        words[1] = ~words[1] + 1;
        words[0] = ~words[0] + (words[1] == 0);
    }
    return put_decimal(r->all, node->column, words[0], words[1], is_negative, node->scale) ||
           misfit(r->all, r->why, NO_DECIMAL);
}

static inline int bytes_value(Reader *r, const AvroNode *node) {
    const uint8_t *bytes;
    int64_t size = node->size;
    if (node->kind == AVRO_BYTES) {
        if (!take_long(r, &size))
            return 0;
        if (size < 0)
            return misfit(r->all, r->why, BAD_SIZE);
    }
    if (!take_bytes(r, (size_t)size, &bytes))
        return 0;
    if (node->column == NULL)
        return 1;
    if (node->column->kind == DECIMAL)
        return decimal_value(r, node, bytes, (size_t)size);
    if (node->column->kind == STRING)
        return put_checked_text(r->all, node->column, bytes, (size_t)size) ||
               misfit(r->all, r->why, NO_UTF8);
    return put_text(r->all, node->column, bytes, (size_t)size);
}

static int enum_value(Reader *r, const AvroNode *node) {
    int64_t number;
    if (!take_long(r, &number))
        return 0;
    if (number < 0 || (uint64_t)number >= node->count)
        return misfit(r->all, r->why, NO_SYMBOL);
    const AvroNode *symbol = &node->children[number];
    if (node->column == NULL)
        return 1;
    if (symbol->kind == AVRO_REJECTED)
        return not_taken(r, symbol);
    return count_bytes(r->all, symbol->name_size) &&
           put_text(r->all, node->column, symbol->name, symbol->name_size);
}

/* -- what has others in it ---------------------------------------------------------------------- */

static int constant_value(Reader *r, const AvroNode *node) {
    if (!count_bytes(r->all, node->constant_size))
        return 0;
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
            return below_field(r->why, node->children[i].name, node->children[i].name_size);
    if (node->column == NULL)
        return 1;
    for (size_t i = node->count; i < node->count + node->constants; i++)
        if (!constant_value(r, &node->children[i]))
            return below_field(r->why, node->children[i].name, node->children[i].name_size);
    return end_struct(r->all, node->column);
}

/* Items of an array, or entries of a map, in blocks. */
static int blocks_value(Reader *r, const AvroNode *node) {
    const AvroNode *item = &node->children[0];
    Column *entries = node->kind == AVRO_MAP && node->column ? node->column->children : NULL;
    size_t number = 0;
    for (;;) {
        int64_t count, size;
        if (!take_long(r, &count))
            return 0;
        if (count == 0)
            break;
        if (count < 0) {
            if (!take_long(r, &size))
                return 0;
            if (count == INT64_MIN || size < 0 || size > r->end - r->at)
                return misfit(r->all, r->why, BAD_SIZE);
            count = -count;
        }
        if (count > r->end - r->at) /* each has a byte at least */
            return misfit(r->all, r->why, ENDS);
        if (node->column && !count_items(r->all, node->column, (size_t)count))
            return 0;
        for (; count > 0; count--, number++) {
            const uint8_t *key;
            if (node->kind == AVRO_MAP) {
                if (!take_long(r, &size))
                    return below_item(r->why, number);
                if (size < 0)
                    return misfit(r->all, r->why, BAD_SIZE), below_item(r->why, number);
                if (!take_bytes(r, (size_t)size, &key))
                    return below_item(r->why, number);
                if (entries && !put_checked_text(r->all, &entries->children[0], key, (size_t)size))
                    return misfit(r->all, r->why, NO_UTF8), below_item(r->why, number);
            }
            if (!value(r, item))
                return below_item(r->why, number);
            if (entries && !end_struct(r->all, entries))
                return 0;
        }
    }
    return node->column == NULL || end_list(r->all, node->column);
}

/* A value that is one member of a STRUCT, of which the others are null. */
static int member_value(Reader *r, const AvroNode *node, const AvroNode *branch) {
    Column *column = node->column;
    if (branch->kind == AVRO_REJECTED)
        return not_taken(r, branch);
    if (column == NULL || branch->member < 0)
        return value(r, branch);
    for (size_t i = 0; i < column->count; i++)
        if (i != (size_t)branch->member && !put_null(r->all, &column->children[i]))
            return 0;
    return value(r, branch) && end_struct(r->all, column);
}

static int union_value(Reader *r, const AvroNode *node) {
    int64_t number;
    if (!take_long(r, &number))
        return 0;
    if (number < 0 || (uint64_t)number >= node->count)
        return misfit(r->all, r->why, NO_BRANCH);
    return member_value(r, node, &node->children[number]);
}

static int value(Reader *r, const AvroNode *node) {
    switch (node->kind) {
    case AVRO_NULL:
        return node->column == NULL || put_null(r->all, node->column);
    case AVRO_BOOLEAN:
        if (r->at == r->end)
            return misfit(r->all, r->why, ENDS);
        if (*r->at > 1)
            return misfit(r->all, r->why, BAD_BOOLEAN);
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
        return not_taken(r, node);
    }
}

int avro_row(Columns *all, const AvroNode *root, const uint8_t *at, size_t size, Misfit *why) {
    Reader r = {at, at + size, all, why};
    size_t row = all->root.rows, before = all->size;
    begin_misfit(why);
    if (value(&r, root) && (r.at == r.end || misfit(all, why, LEFT_OVER)))
        return 1;
    cut_rows(&all->root, row);
    all->size = before;
    return 0;
}
