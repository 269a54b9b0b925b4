/* See _protobuf_writer.h. */

#include "_protobuf_writer.h"

static int put_field(Columns *all, Bytes *to, const Part *part, size_t row);

static inline int put_tag(Columns *all, Bytes *to, const Part *part) {
    return part->number == 0 ||
           put_varint(all, to, (uint64_t)part->number << 3 | (uint64_t)protobuf_wire(part->kind));
}

/* Puts the size of what follows `from` before it. */
static int put_size_at(Columns *all, Bytes *to, size_t from) {
    uint8_t bytes[MOST_VARINT];
    size_t size = to->size - from, width = write_varint(bytes, size);
    if (!grow(all, to, width))
        return 0;
    if (size)
        memmove(to->at + from + width, to->at + from, size);
    memcpy(to->at + from, bytes, width);
    to->size += width;
    return 1;
}

static int put_items(Columns *all, Bytes *to, const Part *part, size_t place) {
    size_t from, end;
    if (part->count != 1)
        return not_there(all);
    if (!limits(all, part, place, &from, &end))
        return 0;
    if (from == end)
        return 1;
    if (!put_tag(all, to, part))
        return 0;
    size_t begin = to->size;
    for (size_t row = from; row < end; row++)
        if (!put_field(all, to, &part->children[0], row))
            return 0;
    return part->number == 0 || put_size_at(all, to, begin);
}

static int put_number(Columns *all, Bytes *to, const Part *part, size_t place) {
    int wire = protobuf_wire(part->kind), truth;
    int64_t number;
    uint64_t bits;
    switch (part->kind) {
    case PB_BOOL:
        if (!bit_of(all, part->first, part->first_size, place, &truth))
            return 0;
        bits = (uint64_t)truth;
        break;
    case PB_INT64:
    case PB_UINT64:
    case PB_SINT64:
    case PB_DOUBLE:
    case PB_FIXED64:
    case PB_SFIXED64:
        if (!number_of(all, part, place, 8, &number))
            return 0;
        bits = part->kind == PB_SINT64 ? zigzag(number) : (uint64_t)number;
        break;
    default:
        if (!number_of(all, part, place, 4, &number))
            return 0;
        bits = part->kind == PB_SINT32 ? zigzag(number)
               : part->kind == PB_UINT32 ? (uint32_t)number
                                         : (uint64_t)number;
    }
    if (part->flag && bits == 0)
        return 1;
    if (!put_tag(all, to, part))
        return 0;
    return wire == VARINT ? put_varint(all, to, bits) : put_bits(all, to, bits, wire == FOUR ? 4 : 8);
}

/* A field that is not null. */
static int put_value(Columns *all, Bytes *to, const Part *part, size_t row) {
    size_t place = part->begin + row, size;
    const uint8_t *at;
    switch (part->kind) {
    case PB_LIST:
        return put_items(all, to, part, place);
    case PB_STRING:
    case PB_BYTES:
        if (!text_of(all, part, place, &at, &size))
            return 0;
        if (part->flag && size == 0)
            return 1;
        return put_tag(all, to, part) && put_varint(all, to, size) && put_bytes(all, to, at, size);
    case PB_MESSAGE:
        if (!put_tag(all, to, part))
            return 0;
        size = to->size;
        return put_message(all, to, part, row) && put_size_at(all, to, size);
    default:
        return protobuf_wire(part->kind) != BYTES ? put_number(all, to, part, place)
                                                  : not_there(all);
    }
}

static int put_field(Columns *all, Bytes *to, const Part *part, size_t row) {
    int is_valid = 1;
    if (part->valid != NULL &&
        !bit_of(all, part->valid, part->valid_size, part->begin + row, &is_valid))
        return 0;
    return !is_valid || put_value(all, to, part, row);
}

int put_message(Columns *all, Bytes *to, const Part *part, size_t row) {
    for (size_t i = 0; i < part->count; i++)
        if (!put_field(all, to, &part->children[i], row))
            return 0;
    return 1;
}
