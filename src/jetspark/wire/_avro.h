/* Datums of Avro into columns, without Python: a plan says how a datum of the writer's schema
   becomes a row of the reader's. See payloads/avro.py. */

#ifndef JETSPARK_AVRO_H
#define JETSPARK_AVRO_H

#include "_columns.h"
#include "_misfit.h"

/* What the writer has written. The numbers are those of payloads/avro_schema.py. */
typedef enum {
    AVRO_NULL, AVRO_BOOLEAN, AVRO_INT, AVRO_LONG, AVRO_FLOAT, AVRO_DOUBLE, AVRO_BYTES, AVRO_FIXED,
    AVRO_ENUM,    /* its children are symbols: texts, and those that the reader lacks */
    AVRO_RECORD,  /* its children are fields, and behind them constants of the reader's */
    AVRO_ARRAY, AVRO_MAP, AVRO_UNION,
    AVRO_BRANCH,  /* no union, but the reader has one: its child is what was written */
    AVRO_REJECTED, /* a branch or a symbol that the reader lacks */
    AVRO_KINDS,
} AvroKind;

typedef struct AvroNode {
    AvroKind kind;
    int is_millis;
    int is_nullable; /* a UNION of two, which both go into its own column */
    int scale;      /* of a decimal of the writer's */
    Column *column; /* NULL: nobody wants the value */
    int32_t member; /* of a branch: the number of its column in the STRUCT of a union; or -1 */
    uint32_t size;  /* of FIXED */
    const uint8_t *name;
    size_t name_size;
    const uint8_t *constant; /* a datum, for each row */
    size_t constant_size;
    struct AvroNode *children;
    size_t count, constants;
} AvroNode;

/* Appends a row for one datum; 0 if it does not fit, or if there is no room, and then the columns
   are as before. */
int avro_row(Columns *all, const AvroNode *root, const uint8_t *at, size_t size, Misfit *why);

#endif
