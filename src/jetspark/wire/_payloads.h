/* The kernel's decoders and encoders of payloads for Python: see kernel.py. */

#ifndef JETSPARK_PAYLOADS_H
#define JETSPARK_PAYLOADS_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

PyObject *avro_datums(PyObject *self, PyObject *args);
PyObject *avro_columns(PyObject *self, PyObject *args);
PyObject *protobuf_columns(PyObject *self, PyObject *args);
PyObject *protobuf_messages(PyObject *self, PyObject *args);
PyObject *json_columns(PyObject *self, PyObject *args);

#endif
