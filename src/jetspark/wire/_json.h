/* JSON payloads into columns, without Python: what is usual, exactly. A record with anything else (a
   value that does not fit, a name twice, a number of many digits) is left to payloads/json_decoder.py,
   which decides what it means. */

#ifndef JETSPARK_JSON_H
#define JETSPARK_JSON_H

#include "_columns.h"
#include "_words.h"

/* Returns the double that is nearest to a JSON number. */
typedef double (*JsonReal)(const char *number);

/* Prepares columns before their first row; 0 without memory. */
int json_keys(Column *root);

/* Appends a row for one payload, behind which there are AHEAD bytes; 0 if it is left, or if there
   is no room, and then the columns are as before. */
int json_row(Columns *all, const uint8_t *at, size_t size, JsonReal real);

#endif
