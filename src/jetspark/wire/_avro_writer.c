/* See _avro_writer.h. */

#include "_avro_writer.h"

static int put_long(Columns *all, Bytes *to, int64_t number) {
    return put_varint(all, to, zigzag(number));
}

/* The bytes of a number in two's complement, the highest first, without those that say nothing. */
static int put_decimal_bytes(Columns *all, Bytes *to, const uint8_t *at) {
    const uint16_t one = 1;
    int is_little = *(const uint8_t *)&one;
    uint8_t bytes[16];
    for (int i = 0; i < 16; i++)
        bytes[i] = is_little ? at[15 - i] : at[i];
    int from = 0;
    while (from < 15 && ((bytes[from] == 0 && bytes[from + 1] < 0x80) ||
                         (bytes[from] == 0xFF && bytes[from + 1] >= 0x80)))
        from++;
    return put_long(all, to, 16 - from) && put_bytes(all, to, bytes + from, (size_t)(16 - from));
}

static int put_block(Columns *all, Bytes *to, const Part *part, size_t place) {
    size_t from, end;
    if (!limits(all, part, place, &from, &end))
        return 0;
    if (end > from && !put_long(all, to, (int64_t)(end - from)))
        return 0;
    for (size_t row = from; row < end; row++)
        for (size_t i = 0; i < part->count; i++)
            if (!put_datum(all, to, &part->children[i], row))
                return 0;
    return put_long(all, to, 0);
}

static int put_branch(Columns *all, Bytes *to, const Part *part, size_t place) {
    const uint8_t *branch = element(all, part->first, part->first_size, place, 1);
    const uint8_t *row = element(all, part->second, part->second_size, place, 4);
    if (branch == NULL || row == NULL)
        return 0;
    if (*branch >= part->count || half_of(row) < 0)
        return not_there(all);
    return put_long(all, to, *branch) &&
           put_datum(all, to, &part->children[*branch], (size_t)half_of(row));
}

int put_datum(Columns *all, Bytes *to, const Part *part, size_t row) {
    const uint8_t *at;
    int64_t number;
    int truth;
    size_t place = part->begin + row, size;
    switch (part->kind) {
    case AVRO_NULL:
        return 1;
    case AVRO_BOOLEAN:
        return bit_of(all, part->first, part->first_size, place, &truth) &&
               put_bits(all, to, (uint64_t)truth, 1);
    case AVRO_INT:
        return number_of(all, part, place, 4, &number) && put_long(all, to, number);
    case AVRO_LONG:
        return number_of(all, part, place, 8, &number) && put_long(all, to, number);
    case AVRO_FLOAT:
        return number_of(all, part, place, 4, &number) && put_bits(all, to, (uint64_t)number, 4);
    case AVRO_DOUBLE:
        return number_of(all, part, place, 8, &number) && put_bits(all, to, (uint64_t)number, 8);
    case AVRO_BYTES:
        if (part->flag) {
            at = element(all, part->first, part->first_size, place, 16);
            return at != NULL && put_decimal_bytes(all, to, at);
        }
        return text_of(all, part, place, &at, &size) && put_long(all, to, (int64_t)size) &&
               put_bytes(all, to, at, size);
    case AVRO_FIXED:
        if (part->number == 0)
            return 1;
        at = element(all, part->first, part->first_size, place, part->number);
        return at != NULL && put_bytes(all, to, at, part->number);
    case AVRO_RECORD:
        for (size_t i = 0; i < part->count; i++)
            if (!put_datum(all, to, &part->children[i], place))
                return 0;
        return 1;
    case AVRO_ARRAY:
    case AVRO_MAP:
        return put_block(all, to, part, place);
    case AVRO_UNION:
        return put_branch(all, to, part, place);
    default:
        return not_there(all);
    }
}
