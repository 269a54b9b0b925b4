/* Messages of Protobuf into columns, without Python. See payloads/protobuf.py. */

#ifndef JETSPARK_PROTOBUF_H
#define JETSPARK_PROTOBUF_H

#include "_columns.h"
#include "_misfit.h"

/* What a field is. The numbers are those of payloads/protobuf_schema.py. */
typedef enum {
    PB_DOUBLE, PB_FLOAT, PB_INT64, PB_UINT64, PB_INT32, PB_UINT32, PB_BOOL, PB_SINT32, PB_SINT64,
    PB_FIXED64, PB_FIXED32, PB_SFIXED64, PB_SFIXED32, PB_STRING,
    PB_BYTES,     /* also a message that contains itself */
    PB_ENUM,      /* its fields are symbols, whose number is theirs */
    PB_MESSAGE, PB_MAP, /* its field is the message of an entry */
    PB_WRAPPER,   /* a message of one field, whose value is the column */
    PB_TIMESTAMP, PB_DURATION, PB_DATE, PB_TIME_OF_DAY,
    PB_KINDS,
    PB_LIST = PB_KINDS, /* only written: values of its one part, which are packed if it has a number */
} PbKind;

enum { VARINT, EIGHT, BYTES, GROUP, END_GROUP, FOUR }; /* how a value is written */

typedef struct PbField {
    PbKind kind;
    int is_repeated;
    int has_default; /* what is not there is 0 or empty, and not null */
    int is_message;  /* what comes several times is one */
    int is_split;    /* it has come several times in the message that is read */
    int has_split;   /* a field of this message has */
    int wire;        /* how its value is written */
    int is_simple;   /* a scalar by itself, of a low number: neither repeated nor in a `oneof` */
    uint64_t tag, tag_mask, tag_size; /* of a simple one: as the bytes are loaded; else of none */
    int32_t number;
    struct PbField *other; /* the next one of its `oneof`, in a circle; or NULL */
    Column *column;
    const uint8_t *name;
    size_t name_size;
    struct PbField *fields; /* by their numbers, and one more without a tag */
    size_t count;
} PbField;

/* How the value of a field is written. */
static inline int protobuf_wire(PbKind kind) {
    switch (kind) {
    case PB_DOUBLE:
    case PB_FIXED64:
    case PB_SFIXED64:
        return EIGHT;
    case PB_FLOAT:
    case PB_FIXED32:
    case PB_SFIXED32:
        return FOUR;
    case PB_INT64:
    case PB_UINT64:
    case PB_INT32:
    case PB_UINT32:
    case PB_BOOL:
    case PB_SINT32:
    case PB_SINT64:
    case PB_ENUM:
        return VARINT;
    default:
        return BYTES;
    }
}

/* Appends a row for one message; 0 if it does not fit, or if there is no room, and then the columns
   are as before. There are AHEAD bytes behind the message (_words.h). */
int protobuf_row(Columns *all, PbField *root, const uint8_t *at, size_t size, Misfit *why);

#endif
