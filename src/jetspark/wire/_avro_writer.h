/* Rows of Arrow columns as datums of Avro, without Python: the reverse of _avro.h. */

#ifndef JETSPARK_AVRO_WRITER_H
#define JETSPARK_AVRO_WRITER_H

#include "_avro.h"

/* A part of each datum, and the memory that has its values; nothing of it is null. */
typedef struct AvroPart {
    AvroKind kind;        /* INT and LONG: of 32 and 64 bits; an ENUM is an INT */
    int is_decimal;       /* BYTES: numbers of 128 bits, in as few bytes as they need */
    uint32_t size;        /* of FIXED */
    const uint8_t *first; /* values; offsets of BYTES, ARRAY and MAP; branches of a UNION */
    const uint8_t *second; /* the bytes of BYTES; the rows of branches */
    size_t first_size, second_size;
    size_t begin; /* the place of row 0 */
    struct AvroPart *children;
    size_t count;
} AvroPart;

/* Appends the datum of a row; 0 without memory, or if a row is not there (`too_large`). */
int avro_datum(Columns *all, Bytes *to, const AvroPart *part, size_t row);

#endif
