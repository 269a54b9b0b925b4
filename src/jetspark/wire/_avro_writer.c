/* See _avro_writer.h. */

#include "_avro_writer.h"

static int put_bytes(Columns *all, Bytes *to, const uint8_t *bytes, size_t size) {
    if (!grow(all, to, size))
        return 0;
    if (size)
        memcpy(to->at + to->size, bytes, size);
    to->size += size;
    return 1;
}

static int put_long(Columns *all, Bytes *to, int64_t number) {
    uint64_t left = (uint64_t)number << 1 ^ (number < 0 ? UINT64_MAX : 0);
    if (!grow(all, to, 10))
        return 0;
    for (; left > 0x7F; left >>= 7)
        to->at[to->size++] = (uint8_t)(left | 0x80);
    to->at[to->size++] = (uint8_t)left;
    return 1;
}

/* Where so many bytes of an element are; NULL if it is not there. */
static const uint8_t *element(Columns *all, const uint8_t *at, size_t size, size_t place,
                              size_t width) {
    if (width && place < size / width)
        return at + place * width;
    all->too_large = 1;
    return NULL;
}

static int32_t whole_of(const uint8_t *at) {
    int32_t number;
    memcpy(&number, at, sizeof number);
    return number;
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

static int put_real(Columns *all, Bytes *to, const uint8_t *at, int size) {
    const uint16_t one = 1;
    int is_little = *(const uint8_t *)&one;
    uint8_t bytes[8];
    for (int i = 0; i < size; i++)
        bytes[i] = is_little ? at[i] : at[size - 1 - i];
    return put_bytes(all, to, bytes, (size_t)size);
}

/* The elements from `from` to before `end` of a text or a list. */
static int limits(Columns *all, const AvroPart *part, size_t place, size_t *from, size_t *end) {
    const uint8_t *at = element(all, part->first, part->first_size, place + 1, 4);
    if (at == NULL)
        return 0;
    int32_t first = whole_of(at - 4), last = whole_of(at);
    if (first < 0 || last < first) {
        all->too_large = 1;
        return 0;
    }
    *from = (size_t)first;
    *end = (size_t)last;
    return 1;
}

static int put_block(Columns *all, Bytes *to, const AvroPart *part, size_t place) {
    size_t from, end;
    if (!limits(all, part, place, &from, &end))
        return 0;
    if (end > from && !put_long(all, to, (int64_t)(end - from)))
        return 0;
    for (size_t row = from; row < end; row++)
        for (size_t i = 0; i < part->count; i++)
            if (!avro_datum(all, to, &part->children[i], row))
                return 0;
    return put_long(all, to, 0);
}

static int put_branch(Columns *all, Bytes *to, const AvroPart *part, size_t place) {
    const uint8_t *branch = element(all, part->first, part->first_size, place, 1);
    const uint8_t *row = element(all, part->second, part->second_size, place, 4);
    if (branch == NULL || row == NULL)
        return 0;
    if (*branch >= part->count || whole_of(row) < 0) {
        all->too_large = 1;
        return 0;
    }
    return put_long(all, to, *branch) &&
           avro_datum(all, to, &part->children[*branch], (size_t)whole_of(row));
}

int avro_datum(Columns *all, Bytes *to, const AvroPart *part, size_t row) {
    const uint8_t *at;
    int64_t number;
    uint8_t truth;
    size_t place = part->begin + row, from, end;
    switch (part->kind) {
    case AVRO_NULL:
        return 1;
    case AVRO_BOOLEAN:
        if ((at = element(all, part->first, part->first_size, place / 8, 1)) == NULL)
            return 0;
        truth = *at >> place % 8 & 1;
        return put_bytes(all, to, &truth, 1);
    case AVRO_INT:
        at = element(all, part->first, part->first_size, place, 4);
        return at != NULL && put_long(all, to, whole_of(at));
    case AVRO_LONG:
        if ((at = element(all, part->first, part->first_size, place, 8)) == NULL)
            return 0;
        memcpy(&number, at, sizeof number);
        return put_long(all, to, number);
    case AVRO_FLOAT:
        at = element(all, part->first, part->first_size, place, 4);
        return at != NULL && put_real(all, to, at, 4);
    case AVRO_DOUBLE:
        at = element(all, part->first, part->first_size, place, 8);
        return at != NULL && put_real(all, to, at, 8);
    case AVRO_BYTES:
        if (part->is_decimal) {
            at = element(all, part->first, part->first_size, place, 16);
            return at != NULL && put_decimal_bytes(all, to, at);
        }
        if (!limits(all, part, place, &from, &end))
            return 0;
        if (end > part->second_size) {
            all->too_large = 1;
            return 0;
        }
        return put_long(all, to, (int64_t)(end - from)) &&
               put_bytes(all, to, part->second + from, end - from);
    case AVRO_FIXED:
        if (part->size == 0)
            return 1;
        at = element(all, part->first, part->first_size, place, part->size);
        return at != NULL && put_bytes(all, to, at, part->size);
    case AVRO_RECORD:
        for (size_t i = 0; i < part->count; i++)
            if (!avro_datum(all, to, &part->children[i], place))
                return 0;
        return 1;
    case AVRO_ARRAY:
    case AVRO_MAP:
        return put_block(all, to, part, place);
    case AVRO_UNION:
        return put_branch(all, to, part, place);
    default:
        all->too_large = 1;
        return 0;
    }
}
