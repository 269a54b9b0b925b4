/* JSON payloads as the columns of their fields, as Arrow has them. */

#include "_json_columns.h"

#include "_json.h"

#include <string.h>

/* A column that is being filled, and its field. */
typedef struct {
    PyObject *valid, *values, *offsets; /* of a text `values` is made at the end */
    uint8_t *text;
    size_t text_size, text_room;
} JsonColumn;

static double json_real(const char *number) {
    double found = PyOS_string_to_double(number, NULL, NULL);
    if (found == -1.0 && PyErr_Occurred())
        PyErr_Clear(); /* never: the number was checked */
    return found;
}

static Py_ssize_t width_of(JsonKind kind) {
    return kind == INT8 ? 1 : kind == INT16 ? 2 : kind == INT32 || kind == DAY ? 4 : 8;
}

static PyObject *zeros(Py_ssize_t size) {
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, size);
    if (bytes != NULL)
        memset(PyBytes_AsString(bytes), 0, (size_t)size);
    return bytes;
}

static void set_bit(PyObject *bits, Py_ssize_t row) {
    PyBytes_AsString(bits)[row >> 3] |= (char)(1 << (row & 7));
}

static int json_begin(JsonColumn *column, JsonKind kind, Py_ssize_t rows) {
    Py_ssize_t bits = (rows + 7) / 8;
    column->valid = zeros(bits);
    if (kind == TEXT)
        column->offsets = zeros(4 * (rows + 1));
    else
        column->values = zeros(kind == TRUTH ? bits : rows * width_of(kind));
    return column->valid != NULL && (kind == TEXT ? column->offsets : column->values) != NULL;
}

/* Appends a text; 0 without memory. */
static int json_append(JsonColumn *column, const JsonField *field) {
    if (column->text_room - column->text_size < field->text.plain) {
        size_t room = 2 * column->text_room + field->text.plain + 1024;
        uint8_t *more = PyMem_Realloc(column->text, room);
        if (more == NULL)
            return 0;
        column->text = more;
        column->text_room = room;
    }
    json_plain(&field->text, column->text + column->text_size);
    column->text_size += field->text.plain;
    return 1;
}

static int json_store(JsonColumn *column, const JsonField *field, Py_ssize_t row) {
    if (field->state == VALUE) {
        set_bit(column->valid, row);
        switch (field->kind) {
        case TEXT:
            return json_append(column, field);
        case TRUTH:
            if (field->whole)
                set_bit(column->values, row);
            return 1;
        case DOUBLE:
            memcpy(PyBytes_AsString(column->values) + 8 * row, &field->real, 8);
            return 1;
        default:;
            Py_ssize_t width = width_of(field->kind);
            int8_t one = (int8_t)field->whole;
            int16_t two = (int16_t)field->whole;
            int32_t four = (int32_t)field->whole;
            const void *from = width == 1   ? (void *)&one
                               : width == 2 ? (void *)&two
                               : width == 4 ? (void *)&four
                                            : (void *)&field->whole;
            memcpy(PyBytes_AsString(column->values) + width * row, from, (size_t)width);
        }
    }
    return 1;
}

static PyObject *json_fill(const Py_buffer *data, const Py_buffer *offsets, JsonField *fields,
                           JsonColumn *columns, Py_ssize_t count) {
    Py_ssize_t rows = offsets->len / 4 - 1;
    PyObject *left = zeros((rows + 7) / 8);
    for (Py_ssize_t i = 0; left != NULL && i < count; i++)
        if (!json_begin(&columns[i], fields[i].kind, rows))
            Py_CLEAR(left);
    for (Py_ssize_t row = 0; left != NULL && row < rows; row++) {
        int32_t limits[2];
        memcpy(limits, (const char *)offsets->buf + 4 * row, 8);
        if (limits[0] < 0 || limits[1] < limits[0] || limits[1] > data->len) {
            PyErr_SetString(PyExc_ValueError, "offsets outside of the data");
            Py_CLEAR(left);
            break;
        }
        int parsed = json_object((const uint8_t *)data->buf + limits[0],
                                 (size_t)(limits[1] - limits[0]), fields, (size_t)count, json_real);
        if (!parsed)
            set_bit(left, row);
        for (Py_ssize_t i = 0; i < count; i++) {
            if (parsed && !json_store(&columns[i], &fields[i], row)) {
                PyErr_NoMemory();
                Py_CLEAR(left);
                break;
            }
            if (fields[i].kind == TEXT) {
                int32_t end = (int32_t)columns[i].text_size;
                memcpy(PyBytes_AsString(columns[i].offsets) + 4 * (row + 1), &end, 4);
            }
        }
    }
    return left;
}

PyObject *json_columns(PyObject *Py_UNUSED(self), PyObject *args) {
    Py_buffer data, offsets;
    PyObject *names, *result = NULL, *left = NULL;
    const char *kinds;
    Py_ssize_t count, kinds_size;
    if (!PyArg_ParseTuple(args, "y*y*O!y#", &data, &offsets, &PyTuple_Type, &names, &kinds,
                          &kinds_size))
        return NULL;
    count = PyTuple_Size(names);
    JsonField *fields = PyMem_Calloc((size_t)count + 1, sizeof *fields);
    JsonColumn *columns = PyMem_Calloc((size_t)count + 1, sizeof *columns);
    if (fields == NULL || columns == NULL) {
        PyErr_NoMemory();
    } else if (count != kinds_size || offsets.len < 4) {
        PyErr_SetString(PyExc_ValueError, "a kind for each name, and rows + 1 offsets");
    } else {
        int named = 1;
        for (Py_ssize_t i = 0; named && i < count; i++) {
            char *name;
            Py_ssize_t size;
            named = PyBytes_AsStringAndSize(PyTuple_GetItem(names, i), &name, &size) == 0;
            if (named && (kinds[i] < 0 || kinds[i] >= KINDS)) {
                PyErr_SetString(PyExc_ValueError, "no such kind");
                named = 0;
            }
            if (named)
                fields[i] = (JsonField){
                    .name = (const uint8_t *)name,
                    .name_size = (size_t)size,
                    .kind = (JsonKind)kinds[i],
                };
        }
        if (named)
            left = json_fill(&data, &offsets, fields, columns, count);
    }
    PyObject *list = left == NULL ? NULL : PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        JsonColumn *column = &columns[i];
        PyObject *one;
        if (fields[i].kind == TEXT)
            one = Py_BuildValue("Oy#O", column->valid, (char *)(column->text ? column->text : (uint8_t *)""),
                                (Py_ssize_t)column->text_size, column->offsets);
        else
            one = Py_BuildValue("OOy#", column->valid, column->values, "", (Py_ssize_t)0);
        if (one == NULL || PyList_Append(list, one) < 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
    }
    if (list != NULL)
        result = Py_BuildValue("OO", left, list);
    Py_XDECREF(list);
    Py_XDECREF(left);
    for (Py_ssize_t i = 0; columns != NULL && i < count; i++) {
        Py_XDECREF(columns[i].valid);
        Py_XDECREF(columns[i].values);
        Py_XDECREF(columns[i].offsets);
        PyMem_Free(columns[i].text);
    }
    PyMem_Free(fields);
    PyMem_Free(columns);
    PyBuffer_Release(&data);
    PyBuffer_Release(&offsets);
    return result;
}
