/* Dates and times in strings of JSON, as ISO 8601 has them. */

#ifndef JETSPARK_JSON_TIMES_H
#define JETSPARK_JSON_TIMES_H

#include "_json_text.h"

#define DATE_FORM 0x2D30302D30303030
#define TIME_FORM 0x30303A30303A3030

/* Whether eight bytes are a date's "0000-00-" or a time's "00:00:00", with any digits. */
static inline int has_form(const uint8_t *at, uint64_t form) {
    uint64_t marks = (form & EACH(8)) >> 3; /* one for each byte that is no digit */
    uint64_t values = load8(at) ^ form;     /* at most 9, and 0 of a mark */
    return ((values | (values + EACH(0x76) + marks * 9)) & EACH(0x80)) == 0;
}

static inline int two_digits(const uint8_t *at) {
    return (at[0] - '0') * 10 + (at[1] - '0');
}

/* 2026-01-31, of year 1 on; days since 1970. */
static const uint8_t *date(const uint8_t *at, const uint8_t *end, int64_t *days) {
    static const int lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (end - at < 10 || !has_form(at, DATE_FORM) || !is_digit(at[8]) || !is_digit(at[9]))
        return NULL;
    int year = two_digits(at) * 100 + two_digits(at + 2), month = two_digits(at + 5),
        day = two_digits(at + 8);
    int leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > lengths[month - 1] ||
        (month == 2 && day == 29 && !leap))
        return NULL;
    *days = days_of(year, month, day);
    return at + 10;
}

/* 123456, of up to nine digits behind a point; microseconds. */
static const uint8_t *fraction(const uint8_t *at, const uint8_t *end, int64_t *micros) {
    static const int units[] = {0, 100000, 10000, 1000, 100, 10, 1};
    uint64_t value;
    unsigned count = read_digits(at, &value);
    at += count;
    if (count == 8 && at < end && is_digit(*at))
        at++; /* a ninth one */
    for (; count > 6; count--)
        value /= 10;
    *micros = (int64_t)value * units[count];
    return count > 0 && at <= end ? at : NULL;
}

/* Z, or an offset like +05:30; seconds. */
static const uint8_t *zone(const uint8_t *at, const uint8_t *end, int *seconds) {
    *seconds = 0;
    if (is_next(at, end, 'Z'))
        return at + 1;
    if (end - at < 6 || (at[0] != '+' && at[0] != '-') || !is_digit(at[1]) || !is_digit(at[2]) ||
        at[3] != ':' || !is_digit(at[4]) || !is_digit(at[5]))
        return NULL;
    int hours = two_digits(at + 1), minutes = two_digits(at + 4);
    *seconds = (hours * 60 + minutes) * (at[0] == '-' ? -60 : 60);
    return hours <= 17 && minutes <= 59 ? at + 6 : NULL;
}

/* 2026-01-31T12:00:00.123456, and a zone if it has one; microseconds since 1970. */
static const uint8_t *instant(const uint8_t *at, const uint8_t *end, int has_zone,
                              int64_t *micros) {
    int64_t days, parts = 0;
    int offset = 0;
    if ((at = date(at, end, &days)) == NULL || end - at < 9 || (*at != 'T' && *at != ' ') ||
        !has_form(at + 1, TIME_FORM))
        return NULL;
    int hours = two_digits(at + 1), minutes = two_digits(at + 4), seconds = two_digits(at + 7);
    at += 9;
    if (hours > 23 || minutes > 59 || seconds > 59)
        return NULL;
    if (is_next(at, end, '.') && (at = fraction(at + 1, end, &parts)) == NULL)
        return NULL;
    if (has_zone && (at = zone(at, end, &offset)) == NULL)
        return NULL;
    *micros = (days * 86400 + hours * 3600 + minutes * 60 + seconds - offset) * 1000000 + parts;
    return at;
}

#endif
