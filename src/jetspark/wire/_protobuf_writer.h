/* Rows of Arrow columns as messages of Protobuf, without Python: the reverse of _protobuf.h. */

#ifndef JETSPARK_PROTOBUF_WRITER_H
#define JETSPARK_PROTOBUF_WRITER_H

#include "_parts.h"
#include "_protobuf.h"

/* The kind of a part is a PbKind, one of a scalar, MESSAGE or LIST; what is null is not written. The
   flag: nor is 0, or what is empty. The number: of the field; 0: the value comes without a tag. */
PutRecord put_message;

#endif
