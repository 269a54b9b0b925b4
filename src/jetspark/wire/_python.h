/* Python's C API as the kernel uses it.

   Only the limited API is used: one build serves every Python from 3.11 on. A free-threaded Python
   has no limited API before 3.15; setup.py defines Py_GIL_DISABLED for it, and builds for its
   version alone. */

#ifndef JETSPARK_PYTHON_H
#define JETSPARK_PYTHON_H

#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

/* Without the GIL a method locks its object, and a decoder the columns that it appends to. Nothing
   between LOCK and UNLOCK waits for another lock while fields do not fit together: that would open
   the section to other threads. */
#ifdef Py_GIL_DISABLED
#define LOCK(object) Py_BEGIN_CRITICAL_SECTION(object)
#define UNLOCK() Py_END_CRITICAL_SECTION()
#define LOCK_BOTH(one, other) Py_BEGIN_CRITICAL_SECTION2(one, other)
#define UNLOCK_BOTH() Py_END_CRITICAL_SECTION2()
#else
#define LOCK(object) {
#define UNLOCK() }
#define LOCK_BOTH(one, other) { (void)(other);
#define UNLOCK_BOTH() }
#endif

/* Defines the method `name_locked`, which runs `name`. */
#define LOCKED(name, type)                                                                         \
    static PyObject *name##_locked(PyObject *self, PyObject *argument) {                           \
        PyObject *result;                                                                          \
        LOCK(self);                                                                                \
        result = name((type *)self, argument);                                                     \
        UNLOCK();                                                                                  \
        return result;                                                                             \
    }

/* The same for a method with three arguments, the last of which is appended to. */
#define LOCKED_WITH_TARGET(name, type)                                                             \
    static PyObject *name##_locked(PyObject *self, PyObject *arguments) {                          \
        PyObject *result, *target = PyTuple_Size(arguments) == 3 ? PyTuple_GetItem(arguments, 2)   \
                                                                 : self;                           \
        LOCK_BOTH(self, target);                                                                   \
        result = name((type *)self, arguments);                                                    \
        UNLOCK_BOTH();                                                                             \
        return result;                                                                             \
    }

/* An item of a list as a new reference: other threads, and any code that the collector runs, may
   remove it from the list meanwhile. NULL, with IndexError, if it is not there any more. */
static inline PyObject *list_item(PyObject *list, Py_ssize_t i) {
#ifdef Py_GIL_DISABLED
    return PyList_GetItemRef(list, i);
#else
    return Py_XNewRef(PyList_GetItem(list, i));
#endif
}

#endif
