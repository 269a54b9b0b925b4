/* Plain JSON objects as columns, without Python: what every parser reads in the same way. The rest
   is left to Spark's, whose reading of it is what users know. */

#ifndef JETSPARK_JSON_H
#define JETSPARK_JSON_H

#include <stddef.h>
#include <stdint.h>

typedef enum { TEXT, INT8, INT16, INT32, INT64, DOUBLE, TRUTH, DAY, TIME, KINDS } JsonKind;

typedef enum { ABSENT, NOTHING, VALUE } JsonState; /* NOTHING: null */

/* A string, between its quotes. */
typedef struct {
    const uint8_t *at;
    size_t size;
    size_t plain; /* bytes without its escapes */
} JsonText;

/* A field of the schema, and its value in the object that was parsed last. */
typedef struct {
    const uint8_t *name;
    size_t name_size;
    JsonKind kind;
    JsonState state;
    int64_t whole; /* also of TRUTH; days and microseconds since 1970 */
    double real;
    JsonText text;
} JsonField;

/* Returns the double that is nearest to a JSON number. */
typedef double (*JsonReal)(const char *number);

/* Parses one payload; 1, or 0 if it is left to Spark. */
int json_object(const uint8_t *at, size_t size, JsonField *fields, size_t count, JsonReal real);

/* Writes the `plain` bytes of a text that was parsed. */
void json_plain(const JsonText *text, uint8_t *to);

#endif
