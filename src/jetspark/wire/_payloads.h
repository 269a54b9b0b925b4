/* The kernel's decoders and encoders of payloads for Python: see kernel.py. */

#ifndef JETSPARK_PAYLOADS_H
#define JETSPARK_PAYLOADS_H

#include "_python.h"

/* Creates what all calls share; -1 with an error. */
int payloads_begin(void);

PyObject *avro_datums(PyObject *self, PyObject *args);
PyObject *avro_columns(PyObject *self, PyObject *args);
PyObject *protobuf_columns(PyObject *self, PyObject *args);
PyObject *protobuf_messages(PyObject *self, PyObject *args);
PyObject *json_columns(PyObject *self, PyObject *args);

#endif
