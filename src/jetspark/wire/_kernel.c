/* The decode kernel in C; _python_kernel.py, here "the twin", documents each name.

   Both return equal results, which tests/wire/test_kernels.py checks. The twin handles the rare
   cases (control frames, unusual reply subjects, protocol errors), so that these, and the texts of
   the errors, exist once.

   An object may be used by several threads (_python.h). What a caller passes to be read must not be
   written meanwhile, as bytes of Python's own never are. */

#include "_python.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "_archive.h"
#include "_payloads.h"

#define MAX_MESSAGE ((long long)128 << 20)
#define MAX_CONTROL_LINE ((Py_ssize_t)1 << 20)
#define OTHER_FRAME (-1)
#define MOST_TOKENS 6

static PyObject *twin_control;  /* control_event(line) */
static PyObject *twin_refuse;   /* refuse(data): raises */
static PyObject *twin_columns;  /* the class Columns */
static PyObject *twin_pairs;    /* the class HeaderPairs */
static PyObject *backup_error;  /* the class */
static PyObject *twin_fields, *twin_sequence, *twin_position; /* for unusual reply subjects */

/* -- frames ----------------------------------------------------------------------------------- */

typedef struct {
    const char *at;
    Py_ssize_t size;
} Text;

typedef struct {
    Text subject, reply; /* reply.at is NULL when there is none */
    long long sid;
    Py_ssize_t line_end; /* after the control line and its CRLF: the start of the header block */
    Py_ssize_t body, end; /* the payload */
    int headed, tidy;     /* tidy: one space between tokens, as servers write them */
} Frame;

typedef enum { A_FRAME, A_CONTROL, PARTIAL, BAD } Kind;

static inline int is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The first byte up to ' ' in value; `limit` if there is none. Eight bytes at a time. */
static inline const char *next_blank(const char *at, const char *limit) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t low = 0x7f7f7f7f7f7f7f7f, above = 0x5f5f5f5f5f5f5f5f; /* 0x80 - 0x21 */
    for (; limit - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        uint64_t blanks = ~(((word & low) + above) | word) & ~low;
        if (blanks)
            return at + (__builtin_ctzll(blanks) >> 3);
    }
#endif
    while (at < limit && (unsigned char)*at > ' ')
        at++;
    return at;
}

/* A number of up to 18 digits; -1 for anything else. */
static inline long long number(Text text) {
    long long value = 0;
    if (text.size < 1 || text.size > 18)
        return -1;
    for (Py_ssize_t i = 0; i < text.size; i++) {
        unsigned digit = (unsigned)(text.at[i] - '0');
        if (digit > 9)
            return -1;
        value = value * 10 + digit;
    }
    return value;
}

/* A size, which may have any number of leading zeros. */
static inline long long size_of(Text text) {
    while (text.size > 1 && *text.at == '0') {
        text.at++;
        text.size--;
    }
    long long value = number(text);
    return value > MAX_MESSAGE ? -1 : value;
}

/* Parses the frame at `pos`. PARTIAL sets `need`; for BAD the twin raises the error. */
static Kind read_frame(const char *data, Py_ssize_t size, Py_ssize_t pos, Frame *frame,
                       Py_ssize_t *need) {
    const char *line = data + pos, *limit = data + size, *eol = line;
    for (;;) {
        eol = memchr(eol, '\r', (size_t)(limit - eol));
        if (eol == NULL || eol + 1 == limit) {
            *need = 0;
            return limit - line > MAX_CONTROL_LINE ? BAD : PARTIAL;
        }
        if (eol[1] == '\n')
            break;
        eol++;
    }
    const char *begin_of_line = line;
    while (line < eol && is_space(*line))
        line++;
    int headed = *line == 'H';
    if (eol - line < 4 + headed || memcmp(line + headed, "MSG", 3) != 0 || !is_space(line[3 + headed]))
        return A_CONTROL;
    Text tokens[MOST_TOKENS];
    int count = 0, spaces = 1;
    Py_ssize_t written = 0;
    for (const char *at = line + 3 + headed; at < eol;) {
        if (is_space(*at)) {
            spaces &= *at == ' ';
            at++;
            continue;
        }
        const char *begin = at;
        while ((at = next_blank(at, eol)) < eol && !is_space(*at))
            at++;
        if (count == MOST_TOKENS)
            return BAD;
        tokens[count].at = begin;
        tokens[count++].size = at - begin;
        written += at - begin + 1;
    }
    if (count < 3 + headed || count > 4 + headed)
        return BAD;
    frame->headed = headed;
    frame->tidy = spaces && line == begin_of_line && written == eol - line - 3 - headed;
    frame->subject = tokens[0];
    frame->sid = number(tokens[1]);
    frame->reply = count == 4 + headed ? tokens[2] : (Text){NULL, 0};
    long long total = size_of(tokens[count - 1]);
    long long head = headed ? size_of(tokens[count - 2]) : 0;
    if (frame->sid < 0 || total < 0 || head < 0 || head > total)
        return BAD;
    frame->line_end = eol + 2 - data;
    frame->body = frame->line_end + (Py_ssize_t)head;
    frame->end = frame->line_end + (Py_ssize_t)total;
    if (frame->end + 2 > size) {
        *need = frame->end + 2 - pos;
        return PARTIAL;
    }
    if (data[frame->end] != '\r' || data[frame->end + 1] != '\n')
        return BAD;
    return A_FRAME;
}

static PyObject *bytes_of(Text text) {
    return PyBytes_FromStringAndSize(text.at, text.size);
}

/* Raises the twin's error for the frame at `pos`. */
static void refuse(Py_buffer *view, Py_ssize_t pos) {
    PyObject *rest = PyBytes_FromStringAndSize((const char *)view->buf + pos, view->len - pos);
    if (rest == NULL)
        return;
    PyObject *never = PyObject_CallFunctionObjArgs(twin_refuse, rest, NULL);
    Py_DECREF(rest);
    if (never != NULL) {
        Py_DECREF(never);
        PyErr_SetString(PyExc_SystemError, "the kernels do not agree on what a bad frame is");
    }
}

/* -- a received message --------------------------------------------------------------------------- */

/* Fields are object members, which are read by name as fast as a tuple's items. Not tracked by the
   garbage collector, since bytes and numbers are never part of a cycle. */
typedef struct {
    PyObject_HEAD
    PyObject *sid, *subject, *reply, *headers, *payload;
} MessageFrame;

static PyTypeObject *frame_type;

/* Steals its references. If one is NULL, an error is set: drops the others and returns NULL. */
static PyObject *message_frame(PyObject *sid, PyObject *subject, PyObject *reply, PyObject *headers,
                               PyObject *payload) {
    MessageFrame *self = NULL;
    if (sid != NULL && subject != NULL && reply != NULL && headers != NULL && payload != NULL)
        self = PyObject_New(MessageFrame, frame_type);
    if (self == NULL) {
        Py_XDECREF(sid);
        Py_XDECREF(subject);
        Py_XDECREF(reply);
        Py_XDECREF(headers);
        Py_XDECREF(payload);
        return NULL;
    }
    self->sid = sid;
    self->subject = subject;
    self->reply = reply;
    self->headers = headers;
    self->payload = payload;
    return (PyObject *)self;
}

static PyObject *frame_new(PyTypeObject *Py_UNUSED(type), PyObject *args, PyObject *keywords) {
    static char *names[] = {"sid", "subject", "reply", "headers", "payload", NULL};
    PyObject *sid, *subject, *reply, *headers, *payload;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!SOOS", names, &PyLong_Type, &sid, &subject,
                                     &reply, &headers, &payload))
        return NULL;
    if ((reply != Py_None && !PyBytes_Check(reply)) ||
        (headers != Py_None && !PyBytes_Check(headers))) {
        PyErr_SetString(PyExc_TypeError, "reply and headers must be bytes or None");
        return NULL;
    }
    return message_frame(Py_NewRef(sid), Py_NewRef(subject), Py_NewRef(reply), Py_NewRef(headers),
                         Py_NewRef(payload));
}

static void frame_free(MessageFrame *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_DECREF(self->sid);
    Py_DECREF(self->subject);
    Py_DECREF(self->reply);
    Py_DECREF(self->headers);
    Py_DECREF(self->payload);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *frame_fields(MessageFrame *self) {
    return PyTuple_Pack(5, self->sid, self->subject, self->reply, self->headers, self->payload);
}

static PyObject *frame_compare(PyObject *self, PyObject *other, int operation) {
    if (Py_TYPE(other) != frame_type || (operation != Py_EQ && operation != Py_NE))
        return Py_NewRef(Py_NotImplemented);
    PyObject *ours = frame_fields((MessageFrame *)self);
    PyObject *theirs = frame_fields((MessageFrame *)other);
    PyObject *result = NULL;
    if (ours != NULL && theirs != NULL)
        result = PyObject_RichCompare(ours, theirs, operation);
    Py_XDECREF(ours);
    Py_XDECREF(theirs);
    return result;
}

static PyObject *frame_repr(MessageFrame *self) {
    return PyUnicode_FromFormat("MessageFrame(sid=%R, subject=%R, reply=%R, headers=%R, payload=%R)",
                                self->sid, self->subject, self->reply, self->headers,
                                self->payload);
}

static PyMemberDef frame_members[] = {
    {"sid", T_OBJECT_EX, offsetof(MessageFrame, sid), READONLY, NULL},
    {"subject", T_OBJECT_EX, offsetof(MessageFrame, subject), READONLY, NULL},
    {"reply", T_OBJECT_EX, offsetof(MessageFrame, reply), READONLY, NULL},
    {"headers", T_OBJECT_EX, offsetof(MessageFrame, headers), READONLY, NULL},
    {"payload", T_OBJECT_EX, offsetof(MessageFrame, payload), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot frame_slots[] = {
    {Py_tp_new, frame_new},
    {Py_tp_dealloc, frame_free},
    {Py_tp_richcompare, frame_compare},
    {Py_tp_hash, PyObject_HashNotImplemented},
    {Py_tp_repr, frame_repr},
    {Py_tp_members, frame_members},
    {Py_tp_doc, "One received message as it came."},
    {0, NULL},
};

static PyType_Spec frame_spec = {
    .name = "jetspark.wire._kernel.MessageFrame",
    .basicsize = sizeof(MessageFrame),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = frame_slots,
};

/* -- split_frames ------------------------------------------------------------------------------- */

/* Consecutive messages of one subscription; either all have a reply subject or none has. */
typedef struct {
    PyObject *out;
    PyObject *frames; /* NULL: no run */
    PyObject *sid_object, *subject_object;
    Text subject;
    long long sid;
    int replied;
    Py_ssize_t payload;
} Run;

static int end_run(Run *run) {
    if (run->frames == NULL)
        return 0;
    PyObject *item = Py_BuildValue("(OOn)", run->sid_object, run->frames, run->payload);
    Py_CLEAR(run->frames);
    if (item == NULL)
        return -1;
    int failed = PyList_Append(run->out, item);
    Py_DECREF(item);
    return failed;
}

static int add_to_run(Run *run, const char *data, const Frame *frame) {
    int replied = frame->reply.at != NULL;
    if (run->frames == NULL || run->sid != frame->sid || run->replied != replied) {
        if (end_run(run) < 0)
            return -1;
        if (run->sid_object == NULL || run->sid != frame->sid) {
            Py_XDECREF(run->sid_object);
            run->sid_object = PyLong_FromLongLong(frame->sid);
            if (run->sid_object == NULL)
                return -1;
            run->sid = frame->sid;
        }
        run->frames = PyList_New(0);
        if (run->frames == NULL)
            return -1;
        run->replied = replied;
        run->payload = 0;
    }
    /* Consecutive messages often have the same subject, and then share one bytes object. */
    if (run->subject_object == NULL || run->subject.size != frame->subject.size ||
        memcmp(run->subject.at, frame->subject.at, (size_t)frame->subject.size) != 0) {
        Py_XDECREF(run->subject_object);
        run->subject_object = bytes_of(frame->subject);
        if (run->subject_object == NULL)
            return -1;
    }
    run->subject = frame->subject;
    Text block = {data + frame->line_end, frame->body - frame->line_end};
    Text payload = {data + frame->body, frame->end - frame->body};
    PyObject *message = message_frame(
        Py_NewRef(run->sid_object), Py_NewRef(run->subject_object),
        replied ? bytes_of(frame->reply) : Py_NewRef(Py_None),
        frame->headed ? bytes_of(block) : Py_NewRef(Py_None), bytes_of(payload));
    if (message == NULL)
        return -1;
    run->payload += payload.size;
    int failed = PyList_Append(run->frames, message);
    Py_DECREF(message);
    return failed;
}

static int add_control(PyObject *out, const char *data, Py_ssize_t pos, Py_ssize_t *end) {
    const char *eol = data + pos;
    while (!(eol[0] == '\r' && eol[1] == '\n'))
        eol++;
    *end = eol + 2 - data;
    PyObject *line = PyBytes_FromStringAndSize(data + pos, eol - (data + pos));
    if (line == NULL)
        return -1;
    PyObject *event = PyObject_CallFunctionObjArgs(twin_control, line, NULL);
    Py_DECREF(line);
    if (event == NULL)
        return -1;
    int failed = PyList_Append(out, event);
    Py_DECREF(event);
    return failed;
}

static PyObject *split_frames(PyObject *Py_UNUSED(module), PyObject *args, PyObject *keywords) {
    static char *names[] = {"data", "out", "pos", "one", NULL};
    Py_buffer view;
    PyObject *out;
    Py_ssize_t pos = 0, need = 0;
    int one = 0, failed = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "y*O|n$p", names, &view, &out, &pos, &one))
        return NULL;
    const char *data = view.buf;
    Run run = {.out = out};
    if (pos < 0 || pos > view.len || !PyList_Check(out)) {
        PyErr_SetString(PyExc_ValueError, "pos must be in data, and out a list");
        failed = 1;
    }
    while (!failed) {
        Frame frame;
        Kind kind = read_frame(data, view.len, pos, &frame, &need);
        if (kind == A_FRAME) {
            failed = add_to_run(&run, data, &frame) < 0;
            pos = frame.end + 2;
        } else if (kind == A_CONTROL) {
            failed = end_run(&run) < 0 || add_control(out, data, pos, &pos) < 0;
        } else {
            failed = end_run(&run) < 0;
            if (!failed && kind == BAD) {
                refuse(&view, pos);
                failed = 1;
            }
            break;
        }
        if (one && !failed) {
            need = 0;
            failed = end_run(&run) < 0;
            break;
        }
    }
    Py_XDECREF(run.frames);
    Py_XDECREF(run.sid_object);
    Py_XDECREF(run.subject_object);
    PyBuffer_Release(&view);
    return failed ? NULL : Py_BuildValue("(nn)", pos, need);
}

/* -- memory that is filled once and given away ---------------------------------------------------- */

/* Large blocks that were released are kept for the next columns: the system maps new memory page by
   page, which costs more than filling it. */
#define SPARES 16
#define LEAST_SPARE ((Py_ssize_t)64 << 10)
#define MOST_SPARE ((Py_ssize_t)32 << 20) /* bytes in all */

typedef struct {
    char *at;
    Py_ssize_t room;
} Memory;

static Memory spares[SPARES];
static Py_ssize_t spared; /* bytes */

/* Spares are accessed with the GIL held, or with a lock that nobody waits for: a thread that does
   not get it does without spares. */
#if !defined(Py_GIL_DISABLED)
static int lock_spares(void) {
    return 1;
}

static void unlock_spares(void) {
}
#elif defined(__GNUC__)
static char spares_locked;

static int lock_spares(void) {
    return !__atomic_test_and_set(&spares_locked, __ATOMIC_ACQUIRE);
}

static void unlock_spares(void) {
    __atomic_clear(&spares_locked, __ATOMIC_RELEASE);
}
#else
static int lock_spares(void) {
    return 0;
}

static void unlock_spares(void) {
}
#endif

/* Whether the memory is a spare now. */
static int keep_spare(Memory memory) {
    if (memory.room <= MOST_SPARE - spared)
        for (int i = 0; i < SPARES; i++)
            if (spares[i].at == NULL) {
                spares[i] = memory;
                spared += memory.room;
                return 1;
            }
    return 0;
}

static void set_free(Memory memory) {
    int kept = 0;
    if (memory.room >= LEAST_SPARE && lock_spares()) {
        kept = keep_spare(memory);
        unlock_spares();
    }
    if (!kept)
        PyMem_Free(memory.at);
}

/* A spare block of at least `room` bytes, but not of many more; NULL if there is none. */
static Memory take_spare(Py_ssize_t room) {
    Memory found = {NULL, 0}, *best = NULL;
    if (room < LEAST_SPARE / 2 || !lock_spares())
        return found;
    for (int i = 0; i < SPARES; i++)
        if (spares[i].at != NULL && spares[i].room >= room && spares[i].room / 4 <= room &&
            (best == NULL || spares[i].room < best->room))
            best = &spares[i];
    if (best != NULL) {
        found = *best;
        spared -= found.room;
        *best = (Memory){NULL, 0};
    }
    unlock_spares();
    return found;
}

typedef struct {
    PyObject_HEAD
    Memory memory;
    Py_ssize_t size;
} Block;

static void block_free(Block *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    set_free(self->memory);
    PyObject_Free(self);
    Py_DECREF(type);
}

static int block_buffer(Block *self, Py_buffer *view, int flags) {
    return PyBuffer_FillInfo(view, (PyObject *)self, self->memory.at, self->size, 1, flags);
}

static PyType_Slot block_slots[] = {
    {Py_tp_dealloc, block_free},
    {Py_bf_getbuffer, block_buffer},
    {Py_tp_doc, "Memory, to be read through the buffer protocol."},
    {0, NULL},
};

static PyType_Spec block_spec = {
    .name = "jetspark.wire._kernel.Block",
    .basicsize = sizeof(Block),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = block_slots,
};

static PyTypeObject *block_type;

typedef struct {
    char *at;
    Py_ssize_t size, room;
    Py_ssize_t expected; /* a little more than the previous batch needed */
} Store;

static int enlarge(Store *store, Py_ssize_t more) {
    Py_ssize_t room = store->room ? store->room : 4096;
    while (room - store->size < more)
        room *= 2;
    if (store->at == NULL && room < store->expected)
        room = store->expected;
    Memory memory = take_spare(room);
    if (memory.at != NULL) {
        if (store->size)
            memcpy(memory.at, store->at, (size_t)store->size);
        PyMem_Free(store->at);
    } else {
        memory = (Memory){PyMem_Realloc(store->at, (size_t)room), room};
        if (memory.at == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    store->at = memory.at;
    store->room = memory.room;
    return 0;
}

static inline int reserve(Store *store, Py_ssize_t more) {
    return store->room - store->size >= more ? 0 : enlarge(store, more);
}

static inline void put(Store *store, const void *from, Py_ssize_t size) {
    if (size) /* an empty store has no address */
        memcpy(store->at + store->size, from, (size_t)size);
    store->size += size;
}

/* Turns the store's memory into an object and leaves the store empty. */
static PyObject *give_away(Store *store) {
    if (reserve(store, 1) < 0) /* so that empty memory has an address too */
        return NULL;
    /* A batch must not keep much more memory than it uses. */
    if (store->room - store->size > store->size / 2) {
        char *at = PyMem_Realloc(store->at, (size_t)store->size + 1);
        if (at != NULL) {
            store->at = at;
            store->room = store->size + 1;
        }
    }
    Block *block = PyObject_New(Block, block_type);
    if (block == NULL)
        return NULL;
    block->memory = (Memory){store->at, store->room};
    block->size = store->size;
    *store = (Store){.expected = store->size + store->size / 8};
    return (PyObject *)block;
}

/* -- Deliveries ------------------------------------------------------------------------------------ */

/* A column of byte strings in Arrow's layout: rows + 1 offsets of 32 bits, and the bytes. */
typedef struct {
    Store offsets, bytes;
} Strings;

typedef struct {
    PyObject_HEAD
    Py_ssize_t rows;
    Py_ssize_t size;
    Strings subjects, headers, data;
    Store sequences, times;
} Deliveries;

#define MOST_BYTES ((Py_ssize_t)INT32_MAX)

static const int32_t *offsets_of(const Strings *column) {
    return (const int32_t *)column->offsets.at;
}

/* Arrow requires one offset even without rows. */
static int strings_begin(Strings *column) {
    if (column->offsets.size)
        return 0;
    if (reserve(&column->offsets, sizeof(int32_t)) < 0)
        return -1;
    put(&column->offsets, &(int32_t){0}, sizeof(int32_t));
    return 0;
}

static int strings_reserve(Strings *column, Py_ssize_t size) {
    if (column->bytes.size > MOST_BYTES - size) {
        PyErr_SetString(PyExc_OverflowError, "more than 2 GiB in one column");
        return -1;
    }
    if (strings_begin(column) < 0 || reserve(&column->offsets, sizeof(int32_t)) < 0)
        return -1;
    return reserve(&column->bytes, size);
}

static void strings_put(Strings *column, Text text) {
    put(&column->bytes, text.at, text.size);
    int32_t end = (int32_t)column->bytes.size;
    put(&column->offsets, &end, sizeof end);
}

static void strings_truncate(Strings *column, Py_ssize_t rows) {
    if (column->offsets.size == 0)
        return;
    column->bytes.size = offsets_of(column)[rows];
    column->offsets.size = (rows + 1) * (Py_ssize_t)sizeof(int32_t);
}

/* Keeps the rows in `kept`, which are in ascending order. */
static void strings_keep(Strings *column, const Py_ssize_t *kept, Py_ssize_t count) {
    if (column->offsets.size == 0)
        return;
    int32_t *offsets = (int32_t *)column->offsets.at, end = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        int32_t from = offsets[kept[i]], size = offsets[kept[i] + 1] - from;
        if (size) /* an empty store has no address */
            memmove(column->bytes.at + end, column->bytes.at + from, (size_t)size);
        end += size;
        offsets[i + 1] = end; /* i + 1 <= kept[i] + 1: this offset was read already */
    }
    column->bytes.size = end;
    column->offsets.size = (count + 1) * (Py_ssize_t)sizeof(int32_t);
}

static int add_row(Deliveries *self, Text subject, long long sequence, long long time, Text block,
                   Text payload) {
    if (strings_reserve(&self->subjects, subject.size) < 0 ||
        strings_reserve(&self->headers, block.size) < 0 ||
        strings_reserve(&self->data, payload.size) < 0 ||
        reserve(&self->sequences, sizeof(int64_t)) < 0 || reserve(&self->times, sizeof(int64_t)) < 0)
        return -1;
    int64_t numbers[2] = {sequence, time};
    strings_put(&self->subjects, subject);
    strings_put(&self->headers, block);
    strings_put(&self->data, payload);
    put(&self->sequences, &numbers[0], sizeof(int64_t));
    put(&self->times, &numbers[1], sizeof(int64_t));
    self->rows++;
    return 0;
}

static PyObject *deliveries_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    if (PyTuple_Size(args) || (keywords != NULL && PyDict_Size(keywords))) {
        PyErr_SetString(PyExc_TypeError, "Deliveries() takes no arguments");
        return NULL;
    }
    allocfunc make = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return make(type, 0); /* zeroed */
}

static void deliveries_free(Deliveries *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Store *stores[] = {&self->subjects.offsets, &self->subjects.bytes, &self->headers.offsets,
                       &self->headers.bytes,    &self->data.offsets,   &self->data.bytes,
                       &self->sequences,        &self->times};
    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++)
        PyMem_Free(stores[i]->at);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static Py_ssize_t deliveries_len(PyObject *self) {
    Py_ssize_t rows;
    LOCK(self);
    rows = ((Deliveries *)self)->rows;
    UNLOCK();
    return rows;
}

static PyObject *deliveries_append(Deliveries *self, PyObject *args) {
    Text subject, block = {"", 0}, payload;
    long long sequence, ns;
    if (!PyArg_ParseTuple(args, "y#LLz#y#", &subject.at, &subject.size, &sequence, &ns, &block.at,
                          &block.size, &payload.at, &payload.size))
        return NULL;
    if (block.at == NULL)
        block.at = "";
    if (add_row(self, subject, sequence, ns, block, payload) < 0)
        return NULL;
    self->size += payload.size;
    Py_RETURN_NONE;
}

static PyObject *deliveries_truncate(Deliveries *self, PyObject *argument) {
    Py_ssize_t rows = PyLong_AsSsize_t(argument);
    if (rows == -1 && PyErr_Occurred())
        return NULL;
    if (rows < 0) {
        PyErr_SetString(PyExc_ValueError, "rows cannot be negative");
        return NULL;
    }
    if (rows < self->rows) {
        strings_truncate(&self->subjects, rows);
        strings_truncate(&self->headers, rows);
        strings_truncate(&self->data, rows);
        self->sequences.size = self->times.size = rows * (Py_ssize_t)sizeof(int64_t);
        self->rows = rows;
    }
    Py_RETURN_NONE;
}

static PyObject *deliveries_keep(Deliveries *self, PyObject *list) {
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "rows to keep must be a list");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(list);
    Py_ssize_t *kept = PyMem_Malloc((size_t)(count + 1) * sizeof(Py_ssize_t));
    if (kept == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *row = list_item(list, i);
        kept[i] = row == NULL ? -1 : PyLong_AsSsize_t(row);
        Py_XDECREF(row);
        if (kept[i] < 0 || kept[i] >= self->rows || (i && kept[i] <= kept[i - 1])) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_IndexError, "rows to keep must exist and be in ascending order");
            PyMem_Free(kept);
            return NULL;
        }
    }
    strings_keep(&self->subjects, kept, count);
    strings_keep(&self->headers, kept, count);
    strings_keep(&self->data, kept, count);
    int64_t *sequences = (int64_t *)self->sequences.at, *times = (int64_t *)self->times.at;
    for (Py_ssize_t i = 0; i < count; i++) {
        sequences[i] = sequences[kept[i]];
        times[i] = times[kept[i]];
    }
    self->sequences.size = self->times.size = count * (Py_ssize_t)sizeof(int64_t);
    self->rows = count;
    PyMem_Free(kept);
    Py_RETURN_NONE;
}

static PyObject *numbers_from(const Deliveries *self, const Store *column, PyObject *args) {
    Py_ssize_t start = 0;
    if (!PyArg_ParseTuple(args, "|n", &start))
        return NULL;
    if (start < 0) {
        PyErr_SetString(PyExc_ValueError, "start cannot be negative");
        return NULL;
    }
    Py_ssize_t count = start < self->rows ? self->rows - start : 0;
    PyObject *list = PyList_New(count);
    const int64_t *numbers = (const int64_t *)column->at;
    for (Py_ssize_t i = 0; list != NULL && i < count; i++) {
        PyObject *one = PyLong_FromLongLong(numbers[start + i]);
        if (one == NULL || PyList_SetItem(list, i, one) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *deliveries_sequences(Deliveries *self, PyObject *args) {
    return numbers_from(self, &self->sequences, args);
}

static PyObject *deliveries_times(Deliveries *self, PyObject *args) {
    return numbers_from(self, &self->times, args);
}

static PyObject *deliveries_subjects(Deliveries *self, PyObject *Py_UNUSED(none)) {
    PyObject *list = PyList_New(self->rows);
    const int32_t *offsets = offsets_of(&self->subjects);
    for (Py_ssize_t i = 0; list != NULL && i < self->rows; i++) {
        PyObject *one = PyBytes_FromStringAndSize(self->subjects.bytes.at + offsets[i],
                                                  offsets[i + 1] - offsets[i]);
        if (one == NULL || PyList_SetItem(list, i, one) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *deliveries_last(PyObject *object, void *Py_UNUSED(closure)) {
    const Deliveries *self = (Deliveries *)object;
    int64_t last = 0;
    LOCK(object);
    if (self->rows)
        last = ((const int64_t *)self->sequences.at)[self->rows - 1];
    UNLOCK();
    return PyLong_FromLongLong(last);
}

static PyObject *deliveries_take(Deliveries *self, PyObject *Py_UNUSED(none)) {
    if (strings_begin(&self->subjects) < 0 || strings_begin(&self->headers) < 0 ||
        strings_begin(&self->data) < 0)
        return NULL;
    Store *stores[] = {&self->subjects.offsets, &self->subjects.bytes, &self->sequences,
                       &self->times,            &self->headers.offsets, &self->headers.bytes,
                       &self->data.offsets,     &self->data.bytes};
    PyObject *fields = PyTuple_New(9);
    if (fields == NULL)
        return NULL;
    PyTuple_SetItem(fields, 0, PyLong_FromSsize_t(self->rows));
    for (Py_ssize_t i = 0; i < 8; i++)
        PyTuple_SetItem(fields, i + 1, give_away(stores[i]));
    self->rows = self->size = 0;
    PyObject *result = PyErr_Occurred() ? NULL : PyObject_Call(twin_columns, fields, NULL);
    Py_DECREF(fields);
    return result;
}

LOCKED(deliveries_append, Deliveries)
LOCKED(deliveries_truncate, Deliveries)
LOCKED(deliveries_keep, Deliveries)
LOCKED(deliveries_sequences, Deliveries)
LOCKED(deliveries_times, Deliveries)
LOCKED(deliveries_subjects, Deliveries)
LOCKED(deliveries_take, Deliveries)

static PyMethodDef deliveries_methods[] = {
    {"append", deliveries_append_locked, METH_VARARGS, NULL},
    {"truncate", deliveries_truncate_locked, METH_O, NULL},
    {"keep", deliveries_keep_locked, METH_O, NULL},
    {"sequences", deliveries_sequences_locked, METH_VARARGS, NULL},
    {"times", deliveries_times_locked, METH_VARARGS, NULL},
    {"subjects", deliveries_subjects_locked, METH_NOARGS, NULL},
    {"take", deliveries_take_locked, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef deliveries_members[] = {
    {"size", T_PYSSIZET, offsetof(Deliveries, size), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef deliveries_getset[] = {
    {"last_sequence", deliveries_last, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot deliveries_slots[] = {
    {Py_tp_new, deliveries_new},
    {Py_tp_dealloc, deliveries_free},
    {Py_tp_methods, deliveries_methods},
    {Py_tp_members, deliveries_members},
    {Py_tp_getset, deliveries_getset},
    {Py_sq_length, deliveries_len},
    {Py_tp_doc, "Columns of decoded deliveries."},
    {0, NULL},
};

static PyType_Spec deliveries_spec = {
    .name = "jetspark.wire._kernel.Deliveries",
    .basicsize = sizeof(Deliveries),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = deliveries_slots,
};

static PyTypeObject *deliveries_type;

/* -- reply subjects --------------------------------------------------------------------------------- */

typedef struct {
    uint64_t sequence, consumer_sequence, time, pending; /* columns hold 63 bits of them */
} Numbers;

/* Parses an unsigned 64-bit number, as the server's sequences are, and moves after it. */
static inline int next_number(const char **at, const char *limit, uint64_t *value) {
    const char *begin = *at;
    uint64_t sum = 0;
    unsigned digit;
    for (; *at < limit && (digit = (unsigned)(**at - '0')) <= 9; (*at)++) {
        if (*at - begin >= 19 && (*at - begin > 19 || sum > (UINT64_MAX - digit) / 10))
            return 0;
        sum = sum * 10 + digit;
    }
    *value = sum;
    return *at > begin;
}

/* Parses the five numbers after "<stream>.<consumer>." */
static int read_numbers(const char *at, const char *limit, Numbers *found) {
    uint64_t deliveries;
    uint64_t *values[] = {&deliveries, &found->sequence, &found->consumer_sequence, &found->time,
                          &found->pending};
    for (int i = 0; i < 5; i++) {
        if (i && (at == limit || *at++ != '.'))
            return 0;
        if (!next_number(&at, limit, values[i]) || *values[i] > INT64_MAX)
            return 0;
    }
    return at == limit || *at == '.';
}

static const char PREFIX[] = "$JS.ACK.";
#define PREFIX_SIZE ((Py_ssize_t)sizeof PREFIX - 1)

static inline const char *behind_token(const char *at, const char *limit) {
    const char *dot = memchr(at, '.', (size_t)(limit - at));
    return dot == NULL || dot == at ? NULL : dot + 1;
}

/* Whether this is a delivery of the consumer `name` ("<stream>.<consumer>."). */
static int read_reply(Text reply, const char *name, Py_ssize_t name_size, Numbers *found) {
    if (reply.size < PREFIX_SIZE || memcmp(reply.at, PREFIX, (size_t)PREFIX_SIZE) != 0)
        return 0;
    const char *at = reply.at + PREFIX_SIZE, *limit = reply.at + reply.size;
    const char *behind = behind_token(at, limit);
    behind = behind == NULL ? NULL : behind_token(behind, limit);
    /* The longer form first, with domain and account hash before the stream. */
    const char *starts[] = {behind, at};
    for (int i = 0; i < 2; i++)
        if (starts[i] != NULL && limit - starts[i] > name_size &&
            memcmp(starts[i], name, (size_t)name_size) == 0 &&
            read_numbers(starts[i] + name_size, limit, found))
            return 1;
    return 0;
}

/* -- header blocks ------------------------------------------------------------------------------------- */

static const char *next_line_end(const char *at, const char *limit) {
    while ((at = memchr(at, '\r', (size_t)(limit - at))) != NULL) {
        if (at + 1 < limit && at[1] == '\n')
            return at;
        at++;
    }
    return NULL;
}

static int is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* Appends the pairs of one block; -1 when out of memory. The block ends with two CRLFs. */
static Py_ssize_t put_pairs(const char *block, const char *limit, Strings *keys, Strings *values) {
    static const char version[] = "NATS/1.0";
    Py_ssize_t count = 0;
    if (limit - block < 8 || memcmp(block, version, 8) != 0)
        return 0;
    const char *end = next_line_end(block, limit);
    while (end != NULL) {
        const char *line = end + 2, *next = next_line_end(line, limit);
        if (next == NULL || next_line_end(next + 2, limit) == NULL)
            break;
        end = next;
        const char *colon = memchr(line, ':', (size_t)(end - line));
        if (colon == NULL || colon == line)
            continue;
        const char *from = colon + 1, *to = end;
        while (from < to && is_blank(*from))
            from++;
        while (from < to && is_blank(to[-1]))
            to--;
        if (strings_reserve(keys, colon - line) < 0 || strings_reserve(values, to - from) < 0)
            return -1;
        strings_put(keys, (Text){line, colon - line});
        strings_put(values, (Text){from, to - from});
        count++;
    }
    return count;
}

static PyObject *header_pairs(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer offsets, blocks;
    Strings keys = {0}, values = {0};
    Store lists = {0};
    PyObject *fields = NULL;
    if (!PyArg_ParseTuple(args, "y*y*", &offsets, &blocks))
        return NULL;
    const int32_t *edges = offsets.buf;
    Py_ssize_t rows = offsets.len / (Py_ssize_t)sizeof(int32_t) - 1;
    int32_t count = 0;
    int failed = reserve(&lists, (rows + 1) * (Py_ssize_t)sizeof(int32_t)) < 0 ||
                 strings_begin(&keys) < 0 || strings_begin(&values) < 0;
    if (!failed)
        put(&lists, &count, sizeof count);
    for (Py_ssize_t i = 0; !failed && i < rows; i++) {
        if (edges[i] < 0 || edges[i] > edges[i + 1] || edges[i + 1] > blocks.len) {
            PyErr_SetString(PyExc_ValueError, "the offsets are not those of these headers");
            failed = 1;
            break;
        }
        const char *whole = blocks.buf;
        Py_ssize_t more = put_pairs(whole + edges[i], whole + edges[i + 1], &keys, &values);
        failed = more < 0;
        count += (int32_t)more;
        put(&lists, &count, sizeof count);
    }
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&blocks);
    Store *stores[] = {&lists, &keys.offsets, &keys.bytes, &values.offsets, &values.bytes};
    if (!failed && (fields = PyTuple_New(6)) != NULL) {
        PyTuple_SetItem(fields, 0, PyLong_FromLong(count));
        for (Py_ssize_t i = 0; i < 5; i++)
            PyTuple_SetItem(fields, i + 1, give_away(stores[i]));
    }
    for (int i = 0; i < 5; i++)
        PyMem_Free(stores[i]->at);
    if (fields == NULL)
        return NULL;
    PyObject *result = PyErr_Occurred() ? NULL : PyObject_Call(twin_pairs, fields, NULL);
    Py_DECREF(fields);
    return result;
}

/* -- DeliveryDecoder ---------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    char *name;
    Py_ssize_t name_size;
    long long consumer_sequence, pending;
} Decoder;

static PyObject *decoder_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"stream", "consumer", NULL};
    Text stream, consumer;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "s#s#", names, &stream.at, &stream.size,
                                     &consumer.at, &consumer.size))
        return NULL;
    allocfunc make = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Decoder *self = (Decoder *)make(type, 0);
    if (self == NULL)
        return NULL;
    self->name_size = stream.size + consumer.size + 2;
    self->name = PyMem_Malloc((size_t)self->name_size);
    if (self->name == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    memcpy(self->name, stream.at, (size_t)stream.size);
    self->name[stream.size] = '.';
    memcpy(self->name + stream.size + 1, consumer.at, (size_t)consumer.size);
    self->name[self->name_size - 1] = '.';
    return (PyObject *)self;
}

static void decoder_free(Decoder *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyMem_Free(self->name);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *decoder_decode(Decoder *self, PyObject *args) {
    Py_buffer view;
    Py_ssize_t pos, need = OTHER_FRAME;
    PyObject *target;
    int failed = 0;
    if (!PyArg_ParseTuple(args, "y*nO!", &view, &pos, deliveries_type, &target))
        return NULL;
    Deliveries *into = (Deliveries *)target;
    const char *data = view.buf;
    Py_ssize_t start = pos;
    if (pos < 0 || pos > view.len) {
        PyErr_SetString(PyExc_ValueError, "pos must be in data");
        failed = 1;
    }
    while (!failed) {
        Frame frame;
        Numbers found;
        Py_ssize_t missing = 0;
        Kind kind = read_frame(data, view.len, pos, &frame, &missing);
        /* Also parses an incomplete frame whose control line is complete: `missing` is not 0. */
        if (kind == A_CONTROL || kind == BAD || (kind == PARTIAL && missing == 0) ||
            !frame.tidy || frame.reply.at == NULL ||
            !read_reply(frame.reply, self->name, self->name_size, &found))
            break;
        if (kind == PARTIAL) {
            need = missing;
            break;
        }
        Text block = {data + frame.line_end, frame.body - frame.line_end};
        Text payload = {data + frame.body, frame.end - frame.body};
        failed = add_row(into, frame.subject, (long long)found.sequence,
                         (long long)found.time, block, payload) < 0;
        if (failed)
            break;
        self->consumer_sequence = (long long)found.consumer_sequence;
        self->pending = (long long)found.pending;
        pos = frame.end + 2;
    }
    into->size += pos - start;
    PyBuffer_Release(&view);
    return failed ? NULL : Py_BuildValue("(nn)", pos, need);
}

LOCKED_WITH_TARGET(decoder_decode, Decoder)

static PyMethodDef decoder_methods[] = {
    {"decode", decoder_decode_locked, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef decoder_members[] = {
    {"consumer_sequence", T_LONGLONG, offsetof(Decoder, consumer_sequence), 0, NULL},
    {"pending", T_LONGLONG, offsetof(Decoder, pending), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot decoder_slots[] = {
    {Py_tp_new, decoder_new},
    {Py_tp_dealloc, decoder_free},
    {Py_tp_methods, decoder_methods},
    {Py_tp_members, decoder_members},
    {Py_tp_doc, "Decodes the deliveries of one consumer."},
    {0, NULL},
};

static PyType_Spec decoder_spec = {
    .name = "jetspark.wire._kernel.DeliveryDecoder",
    .basicsize = sizeof(Decoder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = decoder_slots,
};

/* -- archives --------------------------------------------------------------------------------------- */

#define MOST_AT_ONCE ((Py_ssize_t)1 << 20) /* bytes of content */

static int check_pos(Py_ssize_t pos, const Py_buffer *view) {
    if (pos >= 0 && pos <= view->len)
        return 1;
    PyErr_SetString(PyExc_ValueError, "pos must be in the bytes given");
    return 0;
}

typedef struct {
    PyObject_HEAD
    char identified;
} Unpacker;

static PyObject *unpacker_decode(Unpacker *self, PyObject *args) {
    Py_buffer view, out;
    Py_ssize_t pos;
    PyObject *into;
    if (!PyArg_ParseTuple(args, "y*nO!", &view, &pos, &PyByteArray_Type, &into))
        return NULL;
    const uint8_t *data = view.buf;
    if (!check_pos(pos, &view)) {
        PyBuffer_Release(&view);
        return NULL;
    }
    /* How much there is to unpack; bounded, whatever the frames say. */
    S2Frame frame = {0};
    Found found = WHOLE;
    Py_ssize_t behind = pos, need = 0, content = 0, had = PyByteArray_Size(into);
    int identified = self->identified;
    while (content < MOST_AT_ONCE) {
        found = s2_frame(data + behind, (size_t)(view.len - behind), identified, &frame);
        if (found != WHOLE)
            break;
        identified = 1;
        content += (Py_ssize_t)frame.content;
        behind += (Py_ssize_t)frame.size;
    }
    if (found == PART)
        need = (Py_ssize_t)frame.size;
    int failed = PyByteArray_Resize(into, had + content) < 0 ||
                 PyObject_GetBuffer((PyObject *)into, &out, PyBUF_WRITABLE) < 0;
    if (failed) {
        PyBuffer_Release(&view);
        return NULL;
    }
    Py_ssize_t at = pos, to = had;
    Found content_found = WHOLE;
    Py_BEGIN_ALLOW_THREADS
    while (at < behind) {
        s2_frame(data + at, (size_t)(view.len - at), 1, &frame);
        content_found = s2_content(&frame, (uint8_t *)out.buf + to);
        if (content_found != WHOLE)
            break;
        to += (Py_ssize_t)frame.content;
        at += (Py_ssize_t)frame.size;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&out);
    if (content_found != WHOLE)
        failed = PyByteArray_Resize(into, to) < 0;
    if (!failed && (content_found != WHOLE || found == WRONG)) {
        self->identified = (char)(self->identified || at > pos);
        PyErr_SetString(backup_error,
                        content_found == SPOILED ? "The archive is damaged: a checksum does not match."
                        : content_found == WRONG ? "The archive is damaged: a block cannot be unpacked."
                                                 : "The archive is damaged, or is not the archive of a stream.");
        failed = 1;
    }
    if (!failed)
        self->identified = (char)identified;
    PyBuffer_Release(&view);
    return failed ? NULL : Py_BuildValue("(nn)", behind, need);
}

static void unpacker_free(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

LOCKED_WITH_TARGET(unpacker_decode, Unpacker)

static PyMethodDef unpacker_methods[] = {
    {"decode", unpacker_decode_locked, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef unpacker_members[] = {
    {"identified", T_BOOL, offsetof(Unpacker, identified), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot unpacker_slots[] = {
    {Py_tp_dealloc, unpacker_free},
    {Py_tp_methods, unpacker_methods},
    {Py_tp_members, unpacker_members},
    {Py_tp_doc, "Unpacks an S2 stream."},
    {0, NULL},
};

static PyType_Spec unpacker_spec = {
    .name = "jetspark.wire._kernel.S2Decoder",
    .basicsize = sizeof(Unpacker),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = unpacker_slots,
};

/* Both decoders of messages: `key` is that of blocks only. */
typedef struct {
    PyObject_HEAD
    long long start, end, last;
    uint64_t key[4];
} Archive;

static int add_stored(Deliveries *into, const Stored *one) {
    Text name = {(const char *)one->name, (Py_ssize_t)one->name_size};
    Text headers = {(const char *)one->headers, (Py_ssize_t)one->headers_size};
    Text payload = {(const char *)one->payload, (Py_ssize_t)one->payload_size};
    if (add_row(into, name, (long long)one->sequence, one->time, headers, payload) < 0)
        return -1;
    into->size += (Py_ssize_t)one->size;
    return 0;
}

static void archive_free(Archive *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static Archive *archive_make(PyTypeObject *type, long long start, long long end) {
    allocfunc make = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Archive *self = (Archive *)make(type, 0); /* zeroed */
    if (self != NULL) {
        self->start = start;
        self->end = end;
    }
    return self;
}

static PyObject *entries_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"start", "end", NULL};
    long long start, end;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "LL", names, &start, &end))
        return NULL;
    return (PyObject *)archive_make(type, start, end);
}

static PyObject *entries_decode(Archive *self, PyObject *args) {
    Py_buffer view;
    Py_ssize_t pos;
    PyObject *target;
    if (!PyArg_ParseTuple(args, "y*nO!", &view, &pos, deliveries_type, &target))
        return NULL;
    int failed = !check_pos(pos, &view);
    Found found = WHOLE;
    Stored entry;
    while (!failed) {
        found = list_entry((const uint8_t *)view.buf + pos, (size_t)(view.len - pos), &entry);
        if (found == PART || (found == WHOLE && entry.sequence == 0))
            break;
        if (found == WRONG) {
            PyErr_SetString(backup_error, "The archive is damaged: an entry in it has no valid sizes.");
            failed = 1;
            break;
        }
        if ((long long)entry.sequence <= self->last) {
            PyErr_Format(backup_error, "The archive is damaged: message %lld comes after message %lld.",
                         (long long)entry.sequence, self->last);
            failed = 1;
            break;
        }
        self->last = (long long)entry.sequence;
        if (self->last >= self->start && self->last < self->end)
            failed = add_stored((Deliveries *)target, &entry) < 0;
        pos += (Py_ssize_t)entry.size;
    }
    PyBuffer_Release(&view);
    return failed ? NULL : Py_BuildValue("(nn)", pos, found == PART ? (Py_ssize_t)0 : (Py_ssize_t)OTHER_FRAME);
}

static void read_key(const char *bytes, uint64_t key[4]) {
    for (int i = 0; i < 32; i++)
        key[i / 8] |= (uint64_t)(uint8_t)bytes[i] << (8 * (i % 8));
}

static PyObject *records_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"key", "start", "end", NULL};
    PyObject *key;
    long long start, end;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "SLL", names, &key, &start, &end))
        return NULL;
    if (PyBytes_Size(key) != 32) {
        PyErr_SetString(PyExc_ValueError, "the key of a block has 32 bytes");
        return NULL;
    }
    Archive *self = archive_make(type, start, end);
    if (self == NULL)
        return NULL;
    read_key(PyBytes_AsString(key), self->key);
    return (PyObject *)self;
}

static PyObject *records_decode(Archive *self, PyObject *args) {
    Py_buffer view;
    Py_ssize_t pos;
    PyObject *target;
    if (!PyArg_ParseTuple(args, "y*nO!", &view, &pos, deliveries_type, &target))
        return NULL;
    int failed = !check_pos(pos, &view), mark;
    Stored record;
    while (!failed) {
        Found found = block_record((const uint8_t *)view.buf + pos, (size_t)(view.len - pos),
                                   self->key, &record, &mark);
        if (found == PART)
            break;
        if (found != WHOLE) {
            PyErr_SetString(backup_error,
                            found == SPOILED ? "The archive is damaged: the checksum of a message does not match."
                                             : "The archive is damaged: a record in it has no valid sizes.");
            failed = 1;
            break;
        }
        long long sequence = (long long)record.sequence;
        if (mark != TOMBSTONE && sequence > self->last) {
            self->last = sequence;
            if (mark == LIVE && sequence >= self->start && sequence < self->end)
                failed = add_stored((Deliveries *)target, &record) < 0;
        }
        pos += (Py_ssize_t)record.size;
    }
    PyBuffer_Release(&view);
    return failed ? NULL : PyLong_FromSsize_t(pos);
}

LOCKED_WITH_TARGET(entries_decode, Archive)

static PyMethodDef entries_methods[] = {
    {"decode", entries_decode_locked, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

LOCKED_WITH_TARGET(records_decode, Archive)

static PyMethodDef records_methods[] = {
    {"decode", records_decode_locked, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef archive_members[] = {
    {"last_sequence", T_LONGLONG, offsetof(Archive, last), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot entries_slots[] = {
    {Py_tp_new, entries_new},
    {Py_tp_dealloc, archive_free},
    {Py_tp_methods, entries_methods},
    {Py_tp_members, archive_members},
    {Py_tp_doc, "Decodes a list of messages."},
    {0, NULL},
};

static PyType_Slot records_slots[] = {
    {Py_tp_new, records_new},
    {Py_tp_dealloc, archive_free},
    {Py_tp_methods, records_methods},
    {Py_tp_members, archive_members},
    {Py_tp_doc, "Decodes a message block."},
    {0, NULL},
};

static PyType_Spec entries_spec = {
    .name = "jetspark.wire._kernel.EntryDecoder",
    .basicsize = sizeof(Archive),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = entries_slots,
};

static PyType_Spec records_spec = {
    .name = "jetspark.wire._kernel.RecordDecoder",
    .basicsize = sizeof(Archive),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = records_slots,
};

static PyObject *checksum(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer view;
    int portable = 0;
    if (!PyArg_ParseTuple(args, "y*|p", &view, &portable))
        return NULL;
    uint32_t crc = (portable ? crc32c_portable : crc32c)(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static PyObject *highway(PyObject *Py_UNUSED(module), PyObject *args) {
    Text key;
    Py_buffer view;
    int portable = 0;
    if (!PyArg_ParseTuple(args, "y#y*|p", &key.at, &key.size, &view, &portable))
        return NULL;
    Highway state;
    uint64_t lanes[4] = {0}, hash = 0;
    if (key.size == 32) {
        read_key(key.at, lanes);
        highway_begin(&state, lanes, portable);
        size_t half = (size_t)view.len / 2; /* in two parts, as records have several */
        highway_add(&state, view.buf, half);
        highway_add(&state, (const uint8_t *)view.buf + half, (size_t)view.len - half);
        hash = highway_end(&state);
    } else {
        PyErr_SetString(PyExc_ValueError, "a key has 32 bytes");
    }
    PyBuffer_Release(&view);
    return PyErr_Occurred() ? NULL : PyLong_FromUnsignedLongLong(hash);
}

/* -- what a reply subject says ------------------------------------------------------------------------- */

/* $JS.ACK.<stream>.<consumer> and five numbers: 9 tokens, or 11 and more with two before the
   stream. The twin handles anything unusual and raises the errors. */
typedef struct {
    Text tokens[11];
    int stream; /* index of its token */
} Reply;

enum { DELIVERIES = 2, STREAM_SEQUENCE, CONSUMER_SEQUENCE, TIME, PENDING }; /* tokens after the stream */

static int parse_reply(PyObject *subject, Reply *reply) {
    char *text;
    Py_ssize_t size;
    if (!PyBytes_Check(subject) || PyBytes_AsStringAndSize(subject, &text, &size) < 0 ||
        size <= PREFIX_SIZE || memcmp(text, PREFIX, (size_t)PREFIX_SIZE) != 0)
        return 0;
    int count = 0;
    const char *at = text, *limit = text + size;
    for (;;) {
        const char *dot = memchr(at, '.', (size_t)(limit - at));
        if (count < 11)
            reply->tokens[count] = (Text){at, (dot == NULL ? limit : dot) - at};
        count++;
        if (dot == NULL)
            break;
        at = dot + 1;
    }
    reply->stream = count == 9 ? 2 : 4;
    return count == 9 || count >= 11;
}

static int reply_number(const Reply *reply, int which, uint64_t *value) {
    const Text *token = &reply->tokens[reply->stream + which];
    const char *at = token->at, *limit = at + token->size;
    return next_number(&at, limit, value) && at == limit && (which != TIME || *value <= INT64_MAX);
}

static PyObject *reply_fields(PyObject *Py_UNUSED(module), PyObject *subject) {
    Reply reply;
    uint64_t n[5];
    PyObject *fields = NULL;
    int good = parse_reply(subject, &reply);
    for (int i = 0; good && i < 5; i++)
        good = reply_number(&reply, DELIVERIES + i, &n[i]);
    if (good) {
        Text none = {"", 0}, *stream = &reply.tokens[reply.stream], *consumer = stream + 1;
        Text *domain = reply.stream == 4 ? &reply.tokens[2] : &none;
        Text *account = reply.stream == 4 ? &reply.tokens[3] : &none;
        if (domain->size == 1 && *domain->at == '_')
            domain = &none;
        fields = Py_BuildValue("(s#s#KKKKKs#s#)", stream->at, stream->size, consumer->at,
                               consumer->size, n[0], n[1], n[2], n[3], n[4], domain->at,
                               domain->size, account->at, account->size);
        if (fields == NULL && !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
            return NULL;
        PyErr_Clear();
    }
    return fields != NULL ? fields : PyObject_CallFunctionObjArgs(twin_fields, subject, NULL);
}

static PyObject *stream_sequence(PyObject *Py_UNUSED(module), PyObject *subject) {
    Reply reply;
    uint64_t sequence;
    if (parse_reply(subject, &reply) && reply_number(&reply, STREAM_SEQUENCE, &sequence))
        return PyLong_FromUnsignedLongLong(sequence);
    return PyObject_CallFunctionObjArgs(twin_sequence, subject, NULL);
}

static PyObject *stream_position(PyObject *Py_UNUSED(module), PyObject *subject) {
    Reply reply;
    uint64_t sequence, time, pending;
    if (parse_reply(subject, &reply) && reply_number(&reply, STREAM_SEQUENCE, &sequence) &&
        reply_number(&reply, TIME, &time) && reply_number(&reply, PENDING, &pending))
        return Py_BuildValue("(KKK)", sequence, time, pending);
    return PyObject_CallFunctionObjArgs(twin_position, subject, NULL);
}

/* -- messages ----------------------------------------------------------------------------------------------- */

/* The base of all messages: two references. The rest is in its Python subclasses. */
typedef struct {
    PyObject_HEAD
    PyObject *client;
    MessageFrame *frame;
} Delivered;

static PyTypeObject *delivered_type;

static PyObject *delivered_make(PyTypeObject *type, PyObject *client, PyObject *frame) {
    allocfunc make = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Delivered *self = (Delivered *)make(type, 0);
    if (self != NULL) {
        self->client = Py_NewRef(client);
        self->frame = (MessageFrame *)Py_NewRef(frame);
    }
    return (PyObject *)self;
}

static int is_frame(PyObject *frame) {
    if (Py_TYPE(frame) == frame_type)
        return 1;
    PyErr_SetString(PyExc_TypeError, "a message is made of a MessageFrame");
    return 0;
}

static PyObject *delivered_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"client", "frame", NULL};
    PyObject *client, *frame;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO", names, &client, &frame) ||
        !is_frame(frame))
        return NULL;
    return delivered_make(type, client, frame);
}

static int delivered_traverse(Delivered *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->client);
    return 0;
}

/* Only the client can be part of a cycle. The frame is kept, so getters need no NULL check. */
static int delivered_clear(Delivered *self) {
    PyObject *client = self->client;
    self->client = Py_NewRef(Py_None);
    Py_XDECREF(client);
    return 0;
}

static void delivered_free(Delivered *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->client);
    Py_XDECREF((PyObject *)self->frame);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *delivered_data(Delivered *self, void *Py_UNUSED(closure)) {
    return Py_NewRef(self->frame->payload);
}

static PyObject *delivered_seq(Delivered *self, void *Py_UNUSED(closure)) {
    return stream_sequence(NULL, self->frame->reply);
}

static PyMemberDef delivered_members[] = {
    {"_client", T_OBJECT_EX, offsetof(Delivered, client), READONLY, NULL},
    {"_frame", T_OBJECT_EX, offsetof(Delivered, frame), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef delivered_getset[] = {
    {"data", (getter)delivered_data, NULL, "The payload.", NULL},
    {"seq", (getter)delivered_seq, NULL,
     "Sequence in the stream. Raises NotJetStreamMessageError.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot delivered_slots[] = {
    {Py_tp_new, delivered_new},
    {Py_tp_dealloc, delivered_free},
    {Py_tp_traverse, delivered_traverse},
    {Py_tp_clear, delivered_clear},
    {Py_tp_members, delivered_members},
    {Py_tp_getset, delivered_getset},
    {Py_tp_doc, "A frame, and the client that received it."},
    {0, NULL},
};

static PyType_Spec delivered_spec = {
    .name = "jetspark.wire._kernel.Delivered",
    .basicsize = sizeof(Delivered),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = delivered_slots,
};

static PyObject *deliver(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *type, *client, *frames;
    if (!PyArg_ParseTuple(args, "O!OO!", &PyType_Type, &type, &client, &PyList_Type, &frames))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)type, delivered_type)) {
        PyErr_SetString(PyExc_TypeError, "messages are subclasses of Delivered");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(frames);
    PyObject *messages = PyList_New(count);
    for (Py_ssize_t i = 0; messages != NULL && i < count; i++) {
        PyObject *frame = list_item(frames, i), *message = NULL;
        if (frame != NULL && is_frame(frame))
            message = delivered_make((PyTypeObject *)type, client, frame);
        Py_XDECREF(frame);
        if (message == NULL)
            Py_CLEAR(messages);
        else
            PyList_SetItem(messages, i, message);
    }
    return messages;
}

/* -- many publishes and their acks -------------------------------------------------------------------------- */

static char *put_number(char *at, unsigned long long value) {
    char digits[20];
    int count = 0;
    do
        digits[count++] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    while (count > 0)
        *at++ = digits[--count];
    return at;
}

static char *put_text(char *at, const char *text, Py_ssize_t size) {
    memcpy(at, text, (size_t)size);
    return at + size;
}

static PyObject *numbered_publish(PyObject *Py_UNUSED(module), PyObject *args) {
    Text head, tail, payload;
    unsigned long long number;
    if (!PyArg_ParseTuple(args, "y#Ky#y#", &head.at, &head.size, &number, &tail.at, &tail.size,
                          &payload.at, &payload.size))
        return NULL;
    char line_end[32] = " ";
    char *end = put_number(line_end + 1, (unsigned long long)payload.size);
    end = put_text(end, "\r\n", 2);
    char digits[20];
    Py_ssize_t digit_count = put_number(digits, number) - digits;
    Py_ssize_t fixed = 4 + head.size + digit_count + tail.size + (end - line_end) + 2;
    PyObject *frame = PyBytes_FromStringAndSize(NULL, fixed + payload.size);
    if (frame == NULL)
        return NULL;
    char *at = put_text(PyBytes_AsString(frame), "PUB ", 4);
    at = put_text(at, head.at, head.size);
    at = put_text(at, digits, digit_count);
    at = put_text(at, tail.at, tail.size);
    at = put_text(at, line_end, end - line_end);
    at = put_text(at, payload.at, payload.size);
    put_text(at, "\r\n", 2);
    return frame;
}

/* A number as JSON has it, so that an ack with it can be read; not 0. */
static int is_sequence(Text text) {
    return text.size > 0 && *text.at != '0' && number(text) > 0;
}

static PyObject *numbered_acks(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *frames;
    Py_ssize_t first, tail_at;
    Text head;
    if (!PyArg_ParseTuple(args, "O!ny#n", &PyList_Type, &frames, &first, &head.at, &head.size,
                          &tail_at))
        return NULL;
    PyObject *numbers = PyList_New(0);
    for (Py_ssize_t i = first; numbers != NULL && i >= 0 && i < PyList_Size(frames); i++) {
        PyObject *frame = list_item(frames, i), *value = NULL;
        int failed = frame == NULL || !is_frame(frame), plain = 0;
        if (!failed) {
            PyObject *payload = ((MessageFrame *)frame)->payload;
            PyObject *subject = ((MessageFrame *)frame)->subject;
            const char *ack = PyBytes_AsString(payload);
            Py_ssize_t last = PyBytes_Size(payload) - 1, size = PyBytes_Size(subject);
            plain = last > head.size && memcmp(ack, head.at, (size_t)head.size) == 0 &&
                    ack[last] == '}' && is_sequence((Text){ack + head.size, last - head.size});
            if (plain) {
                long long number_at_end = -1;
                if (tail_at >= 0 && tail_at < size)
                    number_at_end =
                        number((Text){PyBytes_AsString(subject) + tail_at, size - tail_at});
                value = PyLong_FromLongLong(number_at_end < 0 ? 0 : number_at_end);
                failed = value == NULL || PyList_Append(numbers, value) < 0;
            }
        }
        Py_XDECREF(value);
        Py_XDECREF(frame);
        if (failed)
            Py_CLEAR(numbers);
        if (!plain)
            break;
    }
    return numbers;
}

/* -- the module --------------------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"crc32c", checksum, METH_VARARGS, NULL},
    {"deliver", deliver, METH_VARARGS, NULL},
    {"split_frames", (PyCFunction)(void (*)(void))split_frames, METH_VARARGS | METH_KEYWORDS, NULL},
    {"highway", highway, METH_VARARGS, NULL},
    {"header_pairs", header_pairs, METH_VARARGS, NULL},
    {"avro_datums", avro_datums, METH_VARARGS, NULL},
    {"protobuf_messages", protobuf_messages, METH_VARARGS, NULL},
    {"avro_columns", avro_columns, METH_VARARGS, NULL},
    {"protobuf_columns", protobuf_columns, METH_VARARGS, NULL},
    {"json_columns", json_columns, METH_VARARGS, NULL},
    {"numbered_acks", numbered_acks, METH_VARARGS, NULL},
    {"numbered_publish", numbered_publish, METH_VARARGS, NULL},
    {"reply_fields", reply_fields, METH_O, NULL},
    {"stream_position", stream_position, METH_O, NULL},
    {"stream_sequence", stream_sequence, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

/* Static, because to look for them in a module's state costs time for each message. So they are of
   one interpreter; another one has to use the twin. */
static const struct {
    PyObject **object;
    const char *module, *name;
} imports[] = {
    {&twin_control, "jetspark.wire._python_kernel", "control_event"},
    {&twin_refuse, "jetspark.wire._python_kernel", "refuse"},
    {&twin_columns, "jetspark.wire._python_kernel", "Columns"},
    {&twin_pairs, "jetspark.wire._python_kernel", "HeaderPairs"},
    {&twin_fields, "jetspark.wire._python_kernel", "reply_fields"},
    {&twin_sequence, "jetspark.wire._python_kernel", "stream_sequence"},
    {&twin_position, "jetspark.wire._python_kernel", "stream_position"},
    {&backup_error, "jetspark.errors", "BackupError"},
};

static PyTypeObject *decoder_type, *unpacker_type, *entries_type, *records_type;

static const struct {
    PyTypeObject **type;
    PyType_Spec *spec;
    const char *name; /* in the module; NULL: only the kernel creates objects */
} types[] = {
    {&block_type, &block_spec, NULL},
    {&frame_type, &frame_spec, "MessageFrame"},
    {&deliveries_type, &deliveries_spec, "Deliveries"},
    {&delivered_type, &delivered_spec, "Delivered"},
    {&decoder_type, &decoder_spec, "DeliveryDecoder"},
    {&unpacker_type, &unpacker_spec, "S2Decoder"},
    {&entries_type, &entries_spec, "EntryDecoder"},
    {&records_type, &records_spec, "RecordDecoder"},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int import_object(const char *module_name, const char *name, PyObject **object) {
    PyObject *module = PyImport_ImportModule(module_name);
    if (module == NULL)
        return -1;
    *object = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return *object == NULL ? -1 : 0;
}

/* Imports and creates what is static, unless a module of this interpreter has done so before. */
static int begin(void) {
    static int64_t owner = -1;
    int64_t interpreter = PyInterpreterState_GetID(PyInterpreterState_Get());
    if (owner == interpreter)
        return 0;
    if (owner >= 0) {
        PyErr_SetString(PyExc_ImportError, "the C kernel is in use by another interpreter");
        return -1;
    }
    for (size_t i = 0; i < COUNT(imports); i++)
        if (import_object(imports[i].module, imports[i].name, imports[i].object) < 0)
            return -1;
    for (size_t i = 0; i < COUNT(types); i++)
        if ((*types[i].type = (PyTypeObject *)PyType_FromSpec(types[i].spec)) == NULL)
            return -1;
    if (payloads_begin() < 0)
        return -1;
    crc32c_portable((const uint8_t *)"", 0); /* makes its table */
    owner = interpreter;
    return 0;
}

static int execute(PyObject *module) {
    if (begin() < 0)
        return -1;
    for (size_t i = 0; i < COUNT(types); i++)
        if (types[i].name != NULL &&
            PyModule_AddObjectRef(module, types[i].name, (PyObject *)*types[i].type) < 0)
            return -1;
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, execute},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "jetspark.wire._kernel",
    .m_doc = "The decode kernel in C.",
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__kernel(void) {
    return PyModuleDef_Init(&definition);
}
