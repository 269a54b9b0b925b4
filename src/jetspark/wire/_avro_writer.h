/* Rows of Arrow columns as datums of Avro, without Python: the reverse of _avro.h. */

#ifndef JETSPARK_AVRO_WRITER_H
#define JETSPARK_AVRO_WRITER_H

#include "_avro.h"
#include "_parts.h"

/* The kind of a part is an AvroKind: INT and LONG have 32 and 64 bits, an ENUM is an INT. The flag
   of BYTES: numbers of 128 bits, in as few bytes as they need. The number of FIXED is its size.
   Nothing is null. */
PutRecord put_datum;

#endif
