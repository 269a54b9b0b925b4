/* See _payloads.h. */

#include "_payloads.h"

#include "_columns.h"
#include "_json.h"

#include <stdlib.h>

#define MOST_DEPTH 32 /* of a schema */
#define NODE_SIZE 8   /* bytes of a column in a plan: see kernel.py */

/* -- plans -------------------------------------------------------------------------------------- */

/* What is left of a plan and its names. */
typedef struct {
    const uint8_t *at;
    Py_ssize_t left;
    PyObject *names;
    Py_ssize_t named;
} Plan;

static int has_right_children(const Column *column) {
    const Column *below = column->children;
    switch (column->kind) {
    case STRUCT:
        return 1;
    case LIST:
        return column->count == 1;
    case MAP:
        return column->count == 1 && below->kind == STRUCT && below->count == 2 &&
               below->children[0].kind == STRING;
    default:
        return column->count == 0;
    }
}

/* Fills a column, whose memory is zero, and those below it from a plan. */
static int column_of(Plan *plan, Column *column, int depth) {
    uint32_t count;
    char *name;
    Py_ssize_t name_size;
    PyObject *text = PyTuple_GetItem(plan->names, plan->named);
    if (text == NULL || PyBytes_AsStringAndSize(text, &name, &name_size) < 0)
        return 0;
    plan->named++;
    if (plan->left < NODE_SIZE || plan->at[0] >= KINDS || depth == MOST_DEPTH) {
        PyErr_SetString(PyExc_ValueError, "no plan of columns");
        return 0;
    }
    column->kind = (ColumnKind)plan->at[0];
    column->precision = plan->at[1];
    column->scale = plan->at[2];
    column->name = (const uint8_t *)name;
    column->name_size = (size_t)name_size;
    memcpy(&count, plan->at + 4, 4);
    plan->at += NODE_SIZE;
    plan->left -= NODE_SIZE;
    if (count > (size_t)plan->left / NODE_SIZE) {
        PyErr_SetString(PyExc_ValueError, "no plan of columns");
        return 0;
    }
    if (count > 0 && (column->children = calloc(count, sizeof *column)) == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    column->count = count;
    for (size_t i = 0; i < count; i++)
        if (!column_of(plan, &column->children[i], depth + 1))
            return 0;
    if (!has_right_children(column)) {
        PyErr_SetString(PyExc_ValueError, "no plan of columns");
        return 0;
    }
    return 1;
}

/* -- results ------------------------------------------------------------------------------------ */

static PyObject *bytes_of(const Bytes *bytes) {
    return PyBytes_FromStringAndSize((const char *)bytes->at, (Py_ssize_t)bytes->size);
}

/* Appends what a column and those below it have, each column before those below it. */
static int append_buffers(PyObject *list, const Column *column) {
    PyObject *valid = column->valid.size ? bytes_of(&column->valid) : Py_NewRef(Py_None);
    PyObject *values = valid == NULL ? NULL : bytes_of(&column->values);
    PyObject *offsets = values == NULL         ? NULL
                        : column->offsets.size ? bytes_of(&column->offsets)
                                               : PyBytes_FromStringAndSize("\0\0\0\0", 4);
    PyObject *one = offsets == NULL ? NULL
                                    : Py_BuildValue("nOOO", (Py_ssize_t)column->rows, valid,
                                                    values, offsets);
    Py_XDECREF(valid);
    Py_XDECREF(values);
    Py_XDECREF(offsets);
    int done = one != NULL && PyList_Append(list, one) == 0;
    Py_XDECREF(one);
    for (size_t i = 0; done && i < column->count; i++)
        done = append_buffers(list, &column->children[i]);
    return done;
}

/* -- JSON --------------------------------------------------------------------------------------- */

static double json_real(const char *number) {
    double found = PyOS_string_to_double(number, NULL, NULL);
    if (found == -1.0 && PyErr_Occurred())
        PyErr_Clear(); /* never: the number was checked */
    return found;
}

static int decode_rows(Columns *all, const Py_buffer *data, const Py_buffer *offsets, char *left) {
    Py_ssize_t rows = offsets->len / 4 - 1;
    for (Py_ssize_t row = 0; row < rows; row++) {
        int32_t limits[2];
        memcpy(limits, (const char *)offsets->buf + 4 * row, 8);
        if (limits[0] < 0 || limits[1] < limits[0] || limits[1] > data->len) {
            PyErr_SetString(PyExc_ValueError, "offsets outside of the data");
            return 0;
        }
        const uint8_t *at = (const uint8_t *)data->buf + limits[0];
        if (json_row(all, at, (size_t)(limits[1] - limits[0]), json_real))
            continue;
        left[row / 8] |= (char)(1 << row % 8);
        if (all->no_memory || all->too_large || !put_null(all, &all->root))
            break;
    }
    if (all->no_memory)
        PyErr_NoMemory();
    return !all->no_memory;
}

PyObject *json_columns(PyObject *Py_UNUSED(self), PyObject *args) {
    Py_buffer data, offsets;
    Plan plan;
    Py_ssize_t limit;
    PyObject *left = NULL, *list = NULL, *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y#O!n", &data, &offsets, &plan.at, &plan.left, &PyTuple_Type,
                          &plan.names, &limit))
        return NULL;
    Columns all = {.limit = limit < 0 ? 0 : (size_t)limit};
    plan.named = 0;
    if (offsets.len < 4) {
        PyErr_SetString(PyExc_ValueError, "rows + 1 offsets");
    } else if (column_of(&plan, &all.root, 0)) {
        if (all.root.kind != STRUCT || plan.left > 0)
            PyErr_SetString(PyExc_ValueError, "no plan of columns");
        else
            left = PyBytes_FromStringAndSize(NULL, (offsets.len / 4 - 1 + 7) / 8);
    }
    if (left != NULL) {
        memset(PyBytes_AsString(left), 0, (size_t)PyBytes_Size(left));
        if (!decode_rows(&all, &data, &offsets, PyBytes_AsString(left)))
            ;
        else if (all.too_large)
            result = Py_NewRef(Py_None);
        else if ((list = PyList_New(0)) != NULL && append_buffers(list, &all.root))
            result = Py_BuildValue("OO", left, list);
    }
    Py_XDECREF(list);
    Py_XDECREF(left);
    free_column(&all.root);
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    return result;
}
