/* Why a record in Avro or Protobuf does not fit. */

#ifndef JETSPARK_MISFIT_H
#define JETSPARK_MISFIT_H

#include "_columns.h"

#include <stdio.h>

/* The numbers are those of payloads/columns.py. */
typedef enum {
    FITS, ENDS, LEFT_OVER, BAD_NUMBER, BAD_SIZE, BAD_BOOLEAN, NO_UTF8, NO_BRANCH, NO_SYMBOL, NO_TIME,
    NO_DECIMAL, NOT_TAKEN, BAD_TAG, TOO_DEEP,
} Problem;

#define MOST_PATH 256

typedef struct {
    Problem problem;
    char path[MOST_PATH]; /* where, written backwards from its end */
    size_t path_size;
    const uint8_t *why; /* of NOT_TAKEN: a sentence */
    size_t why_size;
} Misfit;

static inline void begin_misfit(Misfit *why) {
    why->problem = FITS;
    why->path_size = why->why_size = 0;
    why->why = (const uint8_t *)"";
}

/* The first problem of a record stays; none is told if there is no room. Returns 0. */
static inline int misfit(const Columns *all, Misfit *why, Problem problem) {
    if (has_room(all) && why->problem == FITS)
        why->problem = problem;
    return 0;
}

/* Puts a part of the path before what is there. Returns 0. */
static inline int below(Misfit *why, const char *part, size_t size) {
    if (size <= MOST_PATH - why->path_size) {
        why->path_size += size;
        memcpy(why->path + MOST_PATH - why->path_size, part, size);
    }
    return 0;
}

static inline int below_field(Misfit *why, const uint8_t *name, size_t size) {
    below(why, (const char *)name, size);
    return below(why, ".", 1);
}

static inline int below_item(Misfit *why, size_t number) {
    char part[24];
    return below(why, part, (size_t)snprintf(part, sizeof part, "[%zu]", number));
}

#endif
