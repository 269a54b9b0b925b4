/* See _payloads.h. */

#include "_payloads.h"

#include "_avro_writer.h"
#include "_json.h"
#include "_protobuf_writer.h"

#include <stdlib.h>

#define MOST_DEPTH 256 /* of a schema */

/* -- plans -------------------------------------------------------------------------------------- */

/* What is left of a plan and its names. */
typedef struct {
    const uint8_t *at;
    Py_ssize_t left;
    PyObject *names;
    Py_ssize_t named;
} Plan;

static int no_plan(void) {
    PyErr_SetString(PyExc_ValueError, "no plan");
    return 0;
}

/* Takes the next node of a plan, of a fixed size, and its name. */
static int take_node(Plan *plan, void *node, size_t size, int depth, const uint8_t **name,
                     size_t *name_size) {
    char *bytes;
    Py_ssize_t bytes_size;
    PyObject *text = PyTuple_GetItem(plan->names, plan->named);
    if (text == NULL || PyBytes_AsStringAndSize(text, &bytes, &bytes_size) < 0)
        return 0;
    plan->named++;
    if ((size_t)plan->left < size || depth == MOST_DEPTH)
        return no_plan();
    memcpy(node, plan->at, size);
    plan->at += size;
    plan->left -= (Py_ssize_t)size;
    *name = (const uint8_t *)bytes;
    *name_size = (size_t)bytes_size;
    return 1;
}

static void *zeros(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (memory == NULL)
        PyErr_NoMemory();
    return memory;
}

static int has_right_children(const Column *column) {
    const Column *below = column->children;
    switch (column->kind) {
    case STRUCT:
        return 1;
    case LIST:
        return column->count == 1;
    case MAP:
        return column->count == 1 && below->kind == STRUCT && below->count == 2 &&
               below->children[0].count == 0;
    default:
        return column->count == 0;
    }
}

/* Fills a column, whose memory is zero, and those below it from a plan. */
static int column_of(Plan *plan, Column *column, int depth) {
    struct { /* as in kernel.py */
        uint8_t kind, precision, scale, nothing;
        uint32_t count;
    } given;
    if (!take_node(plan, &given, sizeof given, depth, &column->name, &column->name_size))
        return 0;
    if (given.kind >= KINDS || given.count > (size_t)plan->left / sizeof given)
        return no_plan();
    column->kind = (ColumnKind)given.kind;
    column->precision = given.precision;
    column->scale = given.scale;
    if (given.count > 0 && (column->children = zeros(given.count, sizeof *column)) == NULL)
        return 0;
    column->count = given.count;
    for (size_t i = 0; i < given.count; i++)
        if (!column_of(plan, &column->children[i], depth + 1))
            return 0;
    if (given.count == 1 && (column->kind == LIST || column->kind == MAP))
        column->item_size = value_size(column->children);
    return has_right_children(column) || no_plan();
}

/* -- results ------------------------------------------------------------------------------------ */

/* Memory of the kernel, which others read as a buffer. */
typedef struct {
    PyObject_HEAD
    void *memory;
    Py_ssize_t size;
} Memory;

static PyTypeObject *memory_type;

static int memory_buffer(PyObject *self, Py_buffer *view, int flags) {
    Memory *memory = (Memory *)self;
    return PyBuffer_FillInfo(view, self, memory->memory, memory->size, 1, flags);
}

static void memory_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    free(((Memory *)self)->memory);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, memory_dealloc},
    {Py_bf_getbuffer, memory_buffer},
    {0, NULL},
};

static PyType_Spec memory_spec = {
    .name = "jetspark.wire._kernel.Memory",
    .basicsize = sizeof(Memory),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = memory_slots,
};

int payloads_begin(void) {
    memory_type = (PyTypeObject *)PyType_FromSpec(&memory_spec);
    return memory_type == NULL ? -1 : 0;
}

/* Takes the memory of some bytes. */
static PyObject *memory_of(Bytes *bytes) {
    if (bytes->at == NULL)
        return PyBytes_FromStringAndSize(NULL, 0);
    allocfunc allocate = (allocfunc)PyType_GetSlot(memory_type, Py_tp_alloc);
    Memory *memory = (Memory *)allocate(memory_type, 0);
    if (memory != NULL) {
        memory->memory = bytes->at;
        memory->size = (Py_ssize_t)bytes->size;
        *bytes = (Bytes){NULL, 0, 0};
    }
    return (PyObject *)memory;
}

/* Appends what a column and those below it have, each column before those below it. */
static int append_buffers(PyObject *list, Column *column) {
    PyObject *valid = column->valid.size ? memory_of(&column->valid) : Py_NewRef(Py_None);
    PyObject *values = valid == NULL ? NULL : memory_of(&column->values);
    PyObject *offsets = values == NULL         ? NULL
                        : column->offsets.size ? memory_of(&column->offsets)
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

/* -- batches ------------------------------------------------------------------------------------ */

/* Payloads, and the columns that they become. */
typedef struct {
    Py_buffer data, offsets;
    Columns all;
    Bytes copy; /* of a payload */
} Batch;

static Py_ssize_t rows_of(const Batch *batch) {
    return batch->offsets.len / 4 - 1;
}

static int begin_batch(Batch *batch, Plan *plan, Py_ssize_t limit) {
    batch->all.limit = limit < 0 ? 0 : (size_t)limit;
    if (batch->offsets.len < 4) {
        PyErr_SetString(PyExc_ValueError, "rows + 1 offsets");
        return 0;
    }
    if (!column_of(plan, &batch->all.root, 0))
        return 0;
    if (batch->all.root.kind != STRUCT || plan->left > 0)
        return no_plan();
    size_t rows = (size_t)rows_of(batch), size = value_size(&batch->all.root);
    if (rows > batch->all.limit / size) {
        batch->all.too_large = 1;
    } else {
        batch->all.size = rows * size;
        reserve_rows(&batch->all, &batch->all.root, rows);
    }
    if (batch->all.no_memory)
        PyErr_NoMemory();
    return !batch->all.no_memory;
}

/* A payload with AHEAD bytes behind it: one at the end of the data is copied for that. */
static int payload_of(Batch *batch, Py_ssize_t row, const uint8_t **at, size_t *size) {
    int32_t limits[2];
    Bytes *copy = &batch->copy;
    memcpy(limits, (const char *)batch->offsets.buf + 4 * row, 8);
    if (limits[0] < 0 || limits[1] < limits[0] || limits[1] > batch->data.len) {
        PyErr_SetString(PyExc_ValueError, "offsets outside of the data");
        return 0;
    }
    *at = (const uint8_t *)batch->data.buf + limits[0];
    *size = (size_t)(limits[1] - limits[0]);
    if (batch->data.len - limits[1] >= AHEAD)
        return 1;
    copy->size = 0;
    if (!grow(&batch->all, copy, *size + AHEAD)) {
        PyErr_NoMemory();
        return 0;
    }
    if (*size)
        memcpy(copy->at, *at, *size);
    memset(copy->at + *size, 0, AHEAD);
    *at = copy->at;
    return 1;
}

/* After a payload that is no row; 0 if there is no room, with an error if memory is missing. */
static int put_no_row(Batch *batch) {
    Columns *all = &batch->all;
    if (has_room(all))
        put_null(all, &all->root);
    if (all->no_memory)
        PyErr_NoMemory();
    return has_room(all);
}

/* What has been decoded, beside what is not a row; None if it becomes too large. */
static PyObject *result_of(Batch *batch, PyObject *others) {
    if (batch->all.too_large)
        return Py_NewRef(Py_None);
    PyObject *result = NULL, *list = PyList_New(0);
    if (list != NULL && append_buffers(list, &batch->all.root))
        result = Py_BuildValue("OO", others, list);
    Py_XDECREF(list);
    return result;
}

static void end_batch(Batch *batch) {
    free(batch->copy.at);
    free_column(&batch->all.root);
    PyBuffer_Release(&batch->data);
    PyBuffer_Release(&batch->offsets);
}

/* -- JSON --------------------------------------------------------------------------------------- */

static double json_real(const char *number) {
    double found = PyOS_string_to_double(number, NULL, NULL);
    if (found == -1.0 && PyErr_Occurred())
        PyErr_Clear(); /* never: the number was checked */
    return found;
}

/* The bits of the payloads that are left. */
static PyObject *decode_json(Batch *batch) {
    Py_ssize_t rows = rows_of(batch);
    if (!json_keys(&batch->all.root))
        return PyErr_NoMemory();
    PyObject *left = PyBytes_FromStringAndSize(NULL, (rows + 7) / 8);
    if (left == NULL)
        return NULL;
    char *bits = PyBytes_AsString(left);
    memset(bits, 0, (size_t)PyBytes_Size(left));
    for (Py_ssize_t row = 0; row < rows && has_room(&batch->all); row++) {
        const uint8_t *at;
        size_t size;
        if (!payload_of(batch, row, &at, &size))
            break;
        if (!json_row(&batch->all, at, size, json_real)) {
            bits[row / 8] |= (char)(1 << row % 8);
            if (!put_no_row(batch))
                break;
        }
    }
    if (PyErr_Occurred())
        Py_CLEAR(left);
    return left;
}

PyObject *json_columns(PyObject *Py_UNUSED(self), PyObject *args) {
    Batch batch = {.all = {.size = 0}};
    Plan plan = {.named = 0};
    Py_ssize_t limit;
    if (!PyArg_ParseTuple(args, "y*y*y#O!n", &batch.data, &batch.offsets, &plan.at, &plan.left,
                          &PyTuple_Type, &plan.names, &limit))
        return NULL;
    PyObject *left = begin_batch(&batch, &plan, limit) ? decode_json(&batch) : NULL;
    PyObject *result = left == NULL ? NULL : result_of(&batch, left);
    Py_XDECREF(left);
    end_batch(&batch);
    return result;
}

/* -- records: Avro and Protobuf ------------------------------------------------------------------ */

/* What is left of the plan of a format's records, and the columns by their numbers. */
typedef struct {
    Plan plan;
    PyObject *constants; /* of Avro */
    Py_ssize_t used;
    Column **columns;
    size_t count;
} Records;

static size_t count_columns(const Column *column) {
    size_t count = 1;
    for (size_t i = 0; i < column->count; i++)
        count += count_columns(&column->children[i]);
    return count;
}

static size_t list_columns(Column *column, Column **to) {
    size_t count = 1;
    *to = column;
    for (size_t i = 0; i < column->count; i++)
        count += list_columns(&column->children[i], to + count);
    return count;
}

static int begin_records(Records *records, Batch *batch, Plan *plan, Py_ssize_t limit) {
    if (!begin_batch(batch, plan, limit))
        return 0;
    records->count = count_columns(&batch->all.root);
    records->columns = zeros(records->count, sizeof *records->columns);
    return records->columns != NULL && list_columns(&batch->all.root, records->columns);
}

static int append_misfit(PyObject *list, Py_ssize_t row, const Misfit *why) {
    PyObject *one = Py_BuildValue("niy#y#", row, (int)why->problem,
                                  why->path + MOST_PATH - why->path_size,
                                  (Py_ssize_t)why->path_size, (const char *)why->why,
                                  (Py_ssize_t)why->why_size);
    int done = one != NULL && PyList_Append(list, one) == 0;
    Py_XDECREF(one);
    return done;
}

/* Appends a row for a payload. `root`: of the format. */
typedef int (*Row)(Columns *all, void *root, const uint8_t *at, size_t size, Misfit *why);

static int row_of_avro(Columns *all, void *root, const uint8_t *at, size_t size, Misfit *why) {
    return avro_row(all, root, at, size, why);
}

static int row_of_protobuf(Columns *all, void *root, const uint8_t *at, size_t size, Misfit *why) {
    return protobuf_row(all, root, at, size, why);
}

/* The result: why payloads do not fit, with their rows, and the columns. */
static PyObject *decode_records(Batch *batch, Row row_of, void *root) {
    PyObject *result = NULL, *misfits = PyList_New(0);
    Py_ssize_t rows = rows_of(batch);
    for (Py_ssize_t row = 0; misfits != NULL && row < rows && has_room(&batch->all); row++) {
        const uint8_t *at;
        size_t size;
        Misfit why;
        if (!payload_of(batch, row, &at, &size)) {
            Py_CLEAR(misfits);
        } else if (!row_of(&batch->all, root, at, size, &why)) {
            if (has_room(&batch->all) && !append_misfit(misfits, row, &why))
                Py_CLEAR(misfits);
            else if (!put_no_row(batch))
                break;
        }
    }
    if (misfits != NULL && !PyErr_Occurred())
        result = result_of(batch, misfits);
    Py_XDECREF(misfits);
    return result;
}

/* -- Avro --------------------------------------------------------------------------------------- */

/* Whether a column takes what a node writes into it. */
static int has_right_column(const AvroNode *node) {
    const Column *column = node->column;
    if (column == NULL || node->kind == AVRO_NULL || node->kind == AVRO_REJECTED)
        return 1;
    switch (node->kind) {
    case AVRO_BOOLEAN:
        return column->kind == BOOLEAN;
    case AVRO_INT:
    case AVRO_LONG:
        return column->kind == INT32 || column->kind == INT64 || column->kind == FLOAT ||
               column->kind == DOUBLE || column->kind == DATE || column->kind == TIMESTAMP ||
               column->kind == TIMESTAMP_NTZ;
    case AVRO_FLOAT:
    case AVRO_DOUBLE:
        return column->kind == FLOAT || column->kind == DOUBLE;
    case AVRO_BYTES:
    case AVRO_FIXED:
        return column->kind == BINARY || column->kind == STRING || column->kind == DECIMAL;
    case AVRO_ENUM:
        return column->kind == STRING;
    case AVRO_RECORD:
        return column->kind == STRUCT;
    case AVRO_ARRAY:
        return column->kind == LIST;
    case AVRO_MAP:
        return column->kind == MAP;
    default:
        for (size_t i = 0; i < node->count; i++)
            if (node->children[i].member >= 0 &&
                (column->kind != STRUCT || (size_t)node->children[i].member >= column->count))
                return 0;
        return 1;
    }
}

static int avro_node(Records *avro, AvroNode *node, int depth) {
    struct {
        uint8_t kind, is_millis, scale, has_constant;
        int32_t column, member;
        uint32_t size, count, constants;
    } given;
    Plan *plan = &avro->plan;
    const uint8_t *name;
    char *constant;
    size_t name_size;
    Py_ssize_t constant_size;
    if (!take_node(plan, &given, sizeof given, depth, &name, &name_size))
        return 0;
    size_t below = (size_t)given.count + given.constants;
    if (given.kind >= AVRO_KINDS || given.column < -1 ||
        (given.column >= 0 && (size_t)given.column >= avro->count) || given.size > INT32_MAX ||
        below > (size_t)plan->left / sizeof given)
        return no_plan();
    *node = (AvroNode){
        .kind = (AvroKind)given.kind,
        .is_millis = given.is_millis,
        .scale = given.scale,
        .column = given.column < 0 ? NULL : avro->columns[given.column],
        .member = given.member,
        .size = given.size,
        .name = name,
        .name_size = name_size,
    };
    if (given.has_constant) {
        PyObject *bytes = PyTuple_GetItem(avro->constants, avro->used++);
        if (bytes == NULL || PyBytes_AsStringAndSize(bytes, &constant, &constant_size) < 0)
            return 0;
        node->constant = (const uint8_t *)constant;
        node->constant_size = (size_t)constant_size;
    }
    if (below > 0 && (node->children = zeros(below, sizeof *node)) == NULL)
        return 0;
    for (size_t i = 0; i < below; i++) {
        int done = avro_node(avro, &node->children[i], depth + 1);
        *(i < given.count ? &node->count : &node->constants) += 1;
        if (!done)
            return 0;
        if (i >= given.count && node->children[i].constant == NULL)
            return no_plan();
    }
    node->is_nullable = node->kind == AVRO_UNION && node->count == 2 && below == 2;
    for (size_t i = 0; i < node->count; i++)
        if (node->children[i].member >= 0 || node->children[i].kind == AVRO_REJECTED)
            node->is_nullable = 0;
    int has_one = node->kind == AVRO_ARRAY || node->kind == AVRO_MAP || node->kind == AVRO_BRANCH;
    return ((!has_one || below == 1) && has_right_column(node)) || no_plan();
}

static void free_avro(AvroNode *node) {
    for (size_t i = 0; i < node->count + node->constants; i++)
        free_avro(&node->children[i]);
    free(node->children);
}

PyObject *avro_columns(PyObject *Py_UNUSED(self), PyObject *args) {
    Batch batch = {.all = {.size = 0}};
    Plan plan = {.named = 0};
    Records avro = {.used = 0};
    AvroNode root = {.count = 0};
    Py_ssize_t limit;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y#O!ny#O!O!", &batch.data, &batch.offsets, &plan.at,
                          &plan.left, &PyTuple_Type, &plan.names, &limit, &avro.plan.at,
                          &avro.plan.left, &PyTuple_Type, &avro.plan.names, &PyTuple_Type,
                          &avro.constants))
        return NULL;
    if (begin_records(&avro, &batch, &plan, limit) && avro_node(&avro, &root, 0) &&
        ((root.kind == AVRO_RECORD && root.column == &batch.all.root) || no_plan()))
        result = decode_records(&batch, row_of_avro, &root);
    free(avro.columns);
    free_avro(&root);
    end_batch(&batch);
    return result;
}

/* -- Protobuf ----------------------------------------------------------------------------------- */

static int takes_kind(PbKind kind, const Column *column) {
    switch (kind) {
    case PB_DOUBLE:
        return column->kind == DOUBLE;
    case PB_FLOAT:
        return column->kind == FLOAT;
    case PB_INT32:
    case PB_SINT32:
    case PB_SFIXED32:
        return column->kind == INT32;
    case PB_UINT64:
    case PB_FIXED64:
        return column->kind == DECIMAL && column->precision == 20 && column->scale == 0;
    case PB_BOOL:
        return column->kind == BOOLEAN;
    case PB_STRING:
    case PB_ENUM:
        return column->kind == STRING;
    case PB_BYTES:
        return column->kind == BINARY;
    case PB_MESSAGE:
    case PB_MAP:
        return column->kind == STRUCT;
    case PB_TIMESTAMP:
        return column->kind == TIMESTAMP;
    case PB_DATE:
        return column->kind == DATE;
    case PB_WRAPPER:
        return 1; /* its field is looked at */
    default:
        return column->kind == INT64;
    }
}

static int pb_field(Records *pb, PbField *field, int depth) {
    struct {
        uint8_t kind, is_repeated, has_default, is_message;
        int32_t number, column;
        uint32_t oneof, count;
    } given;
    Plan *plan = &pb->plan;
    const uint8_t *name;
    size_t name_size;
    if (!take_node(plan, &given, sizeof given, depth, &name, &name_size))
        return 0;
    if (given.kind >= PB_KINDS || given.column < 0 || (size_t)given.column >= pb->count ||
        given.count > (size_t)plan->left / sizeof given)
        return no_plan();
    Column *column = pb->columns[given.column];
    *field = (PbField){
        .kind = (PbKind)given.kind,
        .wire = protobuf_wire((PbKind)given.kind),
        .is_repeated = given.is_repeated,
        .has_default = given.has_default,
        .is_message = given.is_message,
        .number = given.number,
        .column = column,
        .name = name,
        .name_size = name_size,
    };
    if (given.is_repeated && column->kind != (given.kind == PB_MAP ? MAP : LIST))
        return no_plan();
    if (!takes_kind(field->kind, given.is_repeated ? column->children : column))
        return no_plan();
    if ((field->fields = zeros(given.count + 1, sizeof *field)) == NULL)
        return 0;
    for (size_t i = 0; i < given.count; i++) {
        field->count++;
        uint32_t oneof;
        if ((size_t)plan->left < sizeof given)
            return no_plan();
        memcpy(&oneof, plan->at + 12, 4);
        if (!pb_field(pb, &field->fields[i], depth + 1))
            return 0;
        if (i > 0 && field->fields[i].number <= field->fields[i - 1].number)
            return no_plan();
        if (oneof > 0) { /* one more than the place of the member before, in a circle */
            if (oneof > i + 1)
                return no_plan();
            PbField *before = &field->fields[oneof - 1];
            field->fields[i].other = oneof == i + 1 ? &field->fields[i] : before->other;
            before->other = &field->fields[i];
        }
    }
    field->fields[field->count].tag = 1;
    for (size_t i = 0; i < field->count; i++) {
        PbField *one = &field->fields[i];
        int64_t tag = (int64_t)one->number * 8 + one->wire;
        one->is_simple = !one->is_repeated && !one->is_message && one->other == NULL &&
                         one->number > 0 && tag < 1 << 14;
        one->tag = 1;
        if (one->is_simple) {
            one->tag = (uint64_t)(tag < 0x80 ? tag : (tag & 0x7F) | 0x80 | tag >> 7 << 8);
            one->tag_mask = tag < 0x80 ? 0xFF : 0xFFFF;
            one->tag_size = tag < 0x80 ? 1 : 2;
        }
    }
    return 1;
}

static void free_pb(PbField *field) {
    for (size_t i = 0; i < field->count; i++)
        free_pb(&field->fields[i]);
    free(field->fields);
}

PyObject *protobuf_columns(PyObject *Py_UNUSED(self), PyObject *args) {
    Batch batch = {.all = {.size = 0}};
    Plan plan = {.named = 0};
    Records pb = {.count = 0};
    PbField root = {.count = 0};
    Py_ssize_t limit;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y#O!ny#O!", &batch.data, &batch.offsets, &plan.at, &plan.left,
                          &PyTuple_Type, &plan.names, &limit, &pb.plan.at, &pb.plan.left,
                          &PyTuple_Type, &pb.plan.names))
        return NULL;
    if (begin_records(&pb, &batch, &plan, limit) && pb_field(&pb, &root, 0) &&
        ((root.kind == PB_MESSAGE && root.column == &batch.all.root && !root.is_repeated) ||
         no_plan()))
        result = decode_records(&batch, row_of_protobuf, &root);
    free(pb.columns);
    free_pb(&root);
    end_batch(&batch);
    return result;
}

/* -- writing records ---------------------------------------------------------------------------- */

/* The buffers of parts, until the records are written. */
typedef struct {
    Py_buffer *buffers;
    size_t count, room;
} Held;

static int hold(Held *held, PyObject *object, const uint8_t **at, size_t *size) {
    if (object == Py_None)
        return 1;
    if (held->count == held->room) {
        size_t room = 2 * held->room + 16;
        Py_buffer *more = realloc(held->buffers, room * sizeof *more);
        if (more == NULL) {
            PyErr_NoMemory();
            return 0;
        }
        held->buffers = more;
        held->room = room;
    }
    Py_buffer *view = &held->buffers[held->count];
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0)
        return 0;
    held->count++;
    *at = view->buf;
    *size = (size_t)view->len;
    return 1;
}

/* Fills a part, whose memory is zero, from (kind, flag, number, begin, valid, first, second, parts).
   */
static int part_of(Held *held, Part *part, PyObject *given, int depth) {
    PyObject *valid, *first, *second, *parts;
    unsigned int number;
    Py_ssize_t begin;
    if (!PyTuple_Check(given) || depth == MOST_DEPTH)
        return no_plan();
    if (!PyArg_ParseTuple(given, "ipInOOOO!", &part->kind, &part->flag, &number, &begin, &valid,
                          &first, &second, &PyTuple_Type, &parts))
        return 0;
    if (begin < 0)
        return no_plan();
    part->number = number;
    part->begin = (size_t)begin;
    if (!hold(held, valid, &part->valid, &part->valid_size) ||
        !hold(held, first, &part->first, &part->first_size) ||
        !hold(held, second, &part->second, &part->second_size))
        return 0;
    Py_ssize_t count = PyTuple_Size(parts);
    if (count > 0 && (part->children = zeros((size_t)count, sizeof *part)) == NULL)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        part->count++;
        if (!part_of(held, &part->children[i], PyTuple_GetItem(parts, i), depth + 1))
            return 0;
    }
    return 1;
}

static void free_part(Part *part) {
    for (size_t i = 0; i < part->count; i++)
        free_part(&part->children[i]);
    free(part->children);
}

static PyObject *write_records(PyObject *args, PutRecord *put) {
    PyObject *given, *result = NULL;
    Py_ssize_t rows;
    Held held = {NULL, 0, 0};
    Part root = {.count = 0};
    Columns all = {.limit = SIZE_MAX};
    Bytes data = {NULL, 0, 0}, offsets = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "nO", &rows, &given))
        return NULL;
    if (part_of(&held, &root, given, 0) && (rows >= 0 || no_plan()) &&
        grow(&all, &offsets, 8 * ((size_t)rows + 1))) {
        int done = 1;
        for (Py_ssize_t row = 0; done && row <= rows; row++) {
            int64_t end = (int64_t)data.size;
            memcpy(offsets.at + 8 * row, &end, 8);
            done = row == rows || put(&all, &data, &root, (size_t)row);
        }
        offsets.size = 8 * ((size_t)rows + 1);
        if (all.too_large) {
            PyErr_SetString(PyExc_ValueError, "a row that is not there");
        } else if (done) {
            PyObject *bytes = memory_of(&data), *ends = memory_of(&offsets);
            if (bytes != NULL && ends != NULL)
                result = Py_BuildValue("OO", bytes, ends);
            Py_XDECREF(bytes);
            Py_XDECREF(ends);
        }
    }
    if (all.no_memory)
        PyErr_NoMemory();
    for (size_t i = 0; i < held.count; i++)
        PyBuffer_Release(&held.buffers[i]);
    free(held.buffers);
    free(data.at);
    free(offsets.at);
    free_part(&root);
    return result;
}

PyObject *avro_datums(PyObject *Py_UNUSED(self), PyObject *args) {
    return write_records(args, put_datum);
}

PyObject *protobuf_messages(PyObject *Py_UNUSED(self), PyObject *args) {
    return write_records(args, put_message);
}
