/* See _protobuf.h. */

#include "_protobuf.h"

#include "_reader.h"

#include <stdlib.h>

#define MOST_GROUPS 1000 /* within each other, where they are unknown fields */
#define NANOS 1000000000
#define LONGEST 315576000000 /* seconds of a Duration */

/* A field's number and how its value is written. */
typedef struct {
    uint32_t number;
    int wire;
} Tag;

static int message(Reader *r, PbField *type, Column *column);

/* -- what is written ---------------------------------------------------------------------------- */

static inline int take_tag(Reader *r, Tag *tag) {
    uint64_t number;
    if (!take_varint(r, &number))
        return 0;
    tag->number = (uint32_t)(number >> 3);
    tag->wire = (int)(number & 7);
    if (number > UINT32_MAX || tag->number == 0 || tag->wire > FOUR)
        return misfit(r->all, r->why, BAD_TAG);
    return 1;
}

static inline int take_part(Reader *r, size_t size, Reader *part) {
    *part = *r;
    if (!take_bytes(r, size, &part->at))
        return 0;
    part->end = r->at;
    return 1;
}

static inline int take_delimited(Reader *r, Reader *part) {
    uint64_t size;
    if (!take_varint(r, &size))
        return 0;
    if (size > SIZE_MAX / 2)
        return misfit(r->all, r->why, ENDS);
    return take_part(r, (size_t)size, part);
}

static int skip_field(Reader *r, Tag tag) {
    uint32_t groups[MOST_GROUPS];
    size_t depth = 0;
    uint64_t number;
    Reader part;
    for (;;) {
        int done = 1;
        switch (tag.wire) {
        case VARINT:
            done = take_varint(r, &number);
            break;
        case EIGHT:
            done = take_part(r, 8, &part);
            break;
        case BYTES:
            done = take_delimited(r, &part);
            break;
        case FOUR:
            done = take_part(r, 4, &part);
            break;
        case GROUP:
            if (depth == MOST_GROUPS)
                return misfit(r->all, r->why, TOO_DEEP);
            groups[depth++] = tag.number;
            break;
        default:
            if (depth == 0 || groups[--depth] != tag.number)
                return misfit(r->all, r->why, BAD_TAG);
        }
        if (!done)
            return 0;
        if (depth == 0)
            return 1;
        if (!take_tag(r, &tag))
            return 0;
    }
}

/* -- scalars ------------------------------------------------------------------------------------ */

/* The field, or the symbol, of a number; NULL if there is none. */
static PbField *numbered(const PbField *type, int32_t number) {
    size_t from = 0, end = type->count;
    while (from < end) {
        size_t middle = from + (end - from) / 2;
        PbField *field = &type->fields[middle];
        if (field->number == number)
            return field;
        if (field->number < number)
            from = middle + 1;
        else
            end = middle;
    }
    return NULL;
}

static int put_symbol(Reader *r, const PbField *field, Column *column, int32_t number) {
    const PbField *symbol = numbered(field, number);
    if (symbol != NULL)
        return count_bytes(r->all, symbol->name_size) &&
               put_text(r->all, column, symbol->name, symbol->name_size);
    char text[16];
    int size = snprintf(text, sizeof text, "%d", (int)number);
    return put_text(r->all, column, (const uint8_t *)text, (size_t)size);
}

/* A value of this field in a column, from the bits that were written. */
static int put_scalar(Reader *r, const PbField *field, Column *column, uint64_t bits) {
    uint32_t half = (uint32_t)bits;
    float single;
    double real;
    switch (field->kind) {
    case PB_DOUBLE:
        memcpy(&real, &bits, sizeof real);
        return put_fixed(r->all, column, &real, sizeof real);
    case PB_FLOAT:
        memcpy(&single, &half, sizeof single);
        return put_fixed(r->all, column, &single, sizeof single);
    case PB_UINT64:
    case PB_FIXED64:
        return put_decimal(r->all, column, 0, bits, 0, 0);
    case PB_INT32:
    case PB_SFIXED32:
        return put_whole(r->all, column, (int32_t)half);
    case PB_UINT32:
    case PB_FIXED32:
        return put_whole(r->all, column, half);
    case PB_SINT32:
        return put_whole(r->all, column, (int32_t)signed_of(half));
    case PB_SINT64:
        return put_whole(r->all, column, signed_of(bits));
    case PB_BOOL:
        return put_truth(r->all, column, bits != 0);
    case PB_ENUM:
        return put_symbol(r, field, column, (int32_t)half);
    default:
        return put_whole(r->all, column, (int64_t)bits);
    }
}

static int scalar_value(Reader *r, const PbField *field, Column *column) {
    uint64_t bits;
    Reader part;
    if (field->wire == VARINT)
        return take_varint(r, &bits) && put_scalar(r, field, column, bits);
    return take_part(r, field->wire == EIGHT ? 8 : 4, &part) &&
           put_scalar(r, field, column, load8(part.at));
}

/* -- well-known messages ------------------------------------------------------------------------ */

/* The whole numbers of fields 1 to `count` of a message; 0 for one that is not there. */
static int whole_fields(Reader *r, int64_t *numbers, uint32_t count) {
    memset(numbers, 0, count * sizeof *numbers);
    while (r->at < r->end) {
        Tag tag;
        uint64_t bits;
        if (!take_tag(r, &tag))
            return 0;
        if (tag.number > count || tag.wire != VARINT) {
            if (!skip_field(r, tag))
                return 0;
        } else if (take_varint(r, &bits)) {
            numbers[tag.number - 1] = (int64_t)bits;
        } else {
            return 0;
        }
    }
    return 1;
}

static int no_time(Reader *r) {
    return misfit(r->all, r->why, NO_TIME);
}

static int timestamp_value(Reader *r, Column *column) {
    int64_t numbers[2];
    if (!whole_fields(r, numbers, 2))
        return 0;
    int64_t seconds = numbers[0], nanos = (int32_t)numbers[1];
    if (nanos < 0 || nanos >= NANOS || seconds < -LONGEST || seconds > LONGEST)
        return no_time(r);
    return put_time(r->all, column, seconds * 1000000 + nanos / 1000) || no_time(r);
}

static int duration_value(Reader *r, Column *column) {
    int64_t numbers[2];
    if (!whole_fields(r, numbers, 2))
        return 0;
    int64_t seconds = numbers[0], nanos = (int32_t)numbers[1];
    if (nanos <= -NANOS || nanos >= NANOS || seconds < -LONGEST || seconds > LONGEST ||
        (seconds > 0 && nanos < 0) || (seconds < 0 && nanos > 0))
        return no_time(r);
    return put_whole(r->all, column, seconds * 1000000 + nanos / 1000);
}

static int date_value(Reader *r, Column *column) {
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t numbers[3];
    if (!whole_fields(r, numbers, 3))
        return 0;
    int32_t year = (int32_t)numbers[0], month = (int32_t)numbers[1], day = (int32_t)numbers[2];
    if (year < 1 || year > 9999 || month < 1 || month > 12 || day < 1)
        return no_time(r);
    int leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (day > lengths[month - 1] + (month == 2 && leap))
        return no_time(r);
    return put_whole(r->all, column, days_of(year, month, day));
}

static int time_of_day_value(Reader *r, Column *column) {
    int64_t numbers[4];
    if (!whole_fields(r, numbers, 4))
        return 0;
    int32_t hours = (int32_t)numbers[0], minutes = (int32_t)numbers[1];
    int32_t seconds = (int32_t)numbers[2], nanos = (int32_t)numbers[3];
    if (hours < 0 || hours > 24 || minutes < 0 || minutes > 59 || seconds < 0 || seconds > 60 ||
        nanos < 0 || nanos >= NANOS)
        return no_time(r);
    int64_t second = hours * 3600 + minutes * 60 + seconds;
    return put_whole(r->all, column, second * 1000000 + nanos / 1000);
}

/* -- messages ----------------------------------------------------------------------------------- */

static int put_default(Reader *r, const PbField *field) {
    Column *column = field->column;
    if (field->is_repeated)
        return end_list(r->all, column);
    if (!field->has_default)
        return put_null(r->all, column);
    if (column->kind == STRING && field->kind != PB_ENUM)
        return put_text(r->all, column, NULL, 0);
    if (column->kind == BINARY)
        return put_text(r->all, column, NULL, 0);
    return put_scalar(r, field, column, 0);
}

/* The value of a delimited field in a column. */
static int delimited_value(Reader *part, PbField *field, Column *column) {
    size_t size = (size_t)(part->end - part->at);
    switch (field->kind) {
    case PB_STRING:
        return put_checked_text(part->all, column, part->at, size) ||
               misfit(part->all, part->why, NO_UTF8);
    case PB_BYTES:
        return put_text(part->all, column, part->at, size);
    case PB_TIMESTAMP:
        return timestamp_value(part, column);
    case PB_DURATION:
        return duration_value(part, column);
    case PB_DATE:
        return date_value(part, column);
    case PB_TIME_OF_DAY:
        return time_of_day_value(part, column);
    default:
        return message(part, field, column);
    }
}

static int is_same(const PbField *field, Tag tag) {
    return field->number == (int32_t)tag.number && field->wire == tag.wire;
}

/* A message that comes several times in another one is all of them together, from the one on that
   follows the last other member of its `oneof`. */
static int merged_value(Reader *r, PbField *field, const uint8_t *from) {
    Bytes bytes = {NULL, 0, 0};
    Reader all = {from, r->at, r->all, r->why}, part;
    int done = 1;
    while (done && all.at < all.end) {
        Tag tag;
        done = take_tag(&all, &tag);
        if (!done)
            break;
        if (is_same(field, tag)) {
            done = take_delimited(&all, &part) &&
                   grow(r->all, &bytes, (size_t)(part.end - part.at) + 1);
            if (!done)
                break;
            memcpy(bytes.at + bytes.size, part.at, (size_t)(part.end - part.at));
            bytes.size += (size_t)(part.end - part.at);
            continue;
        }
        for (PbField *other = field->other; other && other != field; other = other->other)
            if (is_same(other, tag))
                bytes.size = 0;
        done = skip_field(&all, tag);
    }
    done = done && grow(r->all, &bytes, AHEAD);
    if (done) {
        Reader whole = {bytes.at, bytes.at + bytes.size, r->all, r->why};
        memset(bytes.at + bytes.size, 0, AHEAD);
        done = delimited_value(&whole, field, field->column);
    }
    free(bytes.at);
    return done;
}

static int repeated_value(Reader *r, PbField *field, int wire) {
    Column *items = field->column->children;
    int own = field->wire;
    Reader part;
    if (wire == own && own != BYTES)
        return count_items(r->all, field->column, 1) && scalar_value(r, field, items);
    if (!take_delimited(r, &part))
        return 0;
    if (own == BYTES)
        return count_items(r->all, field->column, 1) && delimited_value(&part, field, items);
    while (part.at < part.end) /* packed */
        if (!count_items(r->all, field->column, 1) || !scalar_value(&part, field, items))
            return 0;
    return 1;
}

static int field_value(Reader *r, PbField *type, PbField *field, int wire, size_t row) {
    Reader part;
    if (field->is_repeated) {
        size_t number = field->column->children->rows - begin_of(field->column, row);
        return repeated_value(r, field, wire) || below_item(r->why, number);
    }
    for (PbField *other = field->other; other && other != field; other = other->other) {
        other->is_split = 0;
        if (other->column->rows > row)
            cut_rows(other->column, row);
    }
    if (field->is_message && (field->is_split || field->column->rows > row)) {
        type->has_split = field->is_split = 1;
        cut_rows(field->column, row);
        return take_delimited(r, &part);
    }
    if (field->column->rows > row)
        cut_rows(field->column, row); /* the last one counts */
    if (wire != BYTES)
        return scalar_value(r, field, field->column);
    if (!take_delimited(r, &part))
        return 0;
    if (delimited_value(&part, field, field->column))
        return 1;
    if (r->why->problem != NO_TIME || field->kind < PB_TIMESTAMP)
        return 0;
    /* Another part of it may follow, with which it is a time. */
    r->why->problem = FITS;
    type->has_split = field->is_split = 1;
    cut_rows(field->column, row);
    return 1;
}

/* A varint behind which bytes can be read. */
static inline const uint8_t *next_varint(const uint8_t *at, const uint8_t *end, uint64_t *number) {
    *number = *at;
    if (*number < 0x80)
        return at + 1;
    if (at[1] >= 0x80)
        return long_varint(at, end, number);
    *number = (*number & 0x7F) | (uint64_t)at[1] << 7;
    return at + 2;
}

/* Takes fields from `*next` on, as long as they come in their order, are simple, and fit. It reads
   ahead, and then looks whether that was behind the message. */
static void take_simple(Reader *r, const PbField *type, size_t *next) {
    Columns *all = r->all;
    const uint8_t *at = r->at, *end = r->end;
    const PbField *field = &type->fields[*next];
    for (int done = 1; done; field++) {
        uint64_t bits;
        const uint8_t *value = at + field->tag_size;
        if ((load8(at) & field->tag_mask) != field->tag)
            break;
        if (field->wire == VARINT || field->wire == BYTES) {
            value = next_varint(value, end, &bits);
        } else {
            bits = load8(value);
            value += field->wire == EIGHT ? 8 : 4;
        }
        if (value == NULL || value > end)
            break;
        if (field->kind == PB_INT32) {
            done = put_fixed(all, field->column, &(int32_t){(int32_t)bits}, 4);
        } else if (field->kind == PB_INT64) {
            done = put_fixed(all, field->column, &bits, 8);
        } else if (field->wire != BYTES) {
            done = put_scalar(r, field, field->column, bits);
        } else if (bits <= (uint64_t)(end - value)) {
            done = field->kind == PB_STRING
                       ? put_checked_text(all, field->column, value, (size_t)bits)
                       : put_text(all, field->column, value, (size_t)bits);
            value += bits;
        } else {
            break;
        }
        if (!done)
            break;
        at = value;
    }
    r->at = at;
    *next = (size_t)(field - type->fields);
}

/* The field of a tag. `next`: none has come from there on; mostly this one is next, or came last.
   NULL if it is unknown, or written in another way. */
static PbField *field_of(const PbField *type, Tag tag, size_t *next) {
    int32_t number = (int32_t)tag.number;
    while (*next < type->count && type->fields[*next].number < number)
        ++*next;
    PbField *field = &type->fields[*next];
    if (*next > 0 && field[-1].number == number)
        field--;
    else if (*next == type->count || field->number != number)
        field = numbered(type, number);
    if (field == NULL || (field->wire != tag.wire && !(field->is_repeated && tag.wire == BYTES)))
        return NULL;
    *next += field == &type->fields[*next];
    return field;
}

/* A message into a STRUCT, or into the one column of a wrapper. */
static int message(Reader *r, PbField *type, Column *column) {
    size_t row = column->rows, next = 0, i;
    const uint8_t *from = r->at;
    for (i = 0; type->has_split && i < type->count; i++)
        type->fields[i].is_split = 0;
    type->has_split = 0;
    int only_simple = 1;
    for (;;) {
        Tag tag;
        if (type->fields[next].is_simple)
            take_simple(r, type, &next);
        if (r->at == r->end)
            break;
        only_simple = 0;
        if (!take_tag(r, &tag))
            return 0;
        PbField *field = field_of(type, tag, &next);
        if (field == NULL) {
            if (!skip_field(r, tag))
                return 0;
        } else if (!field_value(r, type, field, tag.wire, row)) {
            return below_field(r->why, field->name, field->name_size);
        }
    }
    for (i = only_simple ? next : 0; i < type->count; i++) {
        PbField *field = &type->fields[i];
        if (field->is_split) {
            if (!merged_value(r, field, from))
                return below_field(r->why, field->name, field->name_size);
        } else if (field->column->rows == row && !put_default(r, field)) {
            return 0;
        }
    }
    return type->kind == PB_WRAPPER || end_struct(r->all, column);
}

int protobuf_row(Columns *all, PbField *root, const uint8_t *at, size_t size, Misfit *why) {
    Reader r = {at, at + size, all, why};
    size_t row = all->root.rows, before = all->size;
    begin_misfit(why);
    if (message(&r, root, &all->root))
        return 1;
    cut_rows(&all->root, row);
    all->size = before;
    return 0;
}
