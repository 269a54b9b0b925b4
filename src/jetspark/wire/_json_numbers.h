/* Numbers of JSON, exactly. */

#ifndef JETSPARK_JSON_NUMBERS_H
#define JETSPARK_JSON_NUMBERS_H

#include "_json.h"
#include "_json_text.h"

#include <float.h>
#include <math.h>

#define MOST_NUMBER 40
#define MOST_PLACES 22 /* of a power of ten that is a double itself */

typedef struct {
    const uint8_t *at;
    size_t size;
    int negative, digits, dots; /* digits before, and those behind the point */
    int exponent, has_exponent;
    uint64_t mantissa; /* of up to 19 digits, else it means nothing */
} Number;

/* Behind digits, of which there may be none, and which are added to those before. */
static inline const uint8_t *digits_of(const uint8_t *at, const uint8_t *end, uint64_t *sum) {
    static const uint64_t tens[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    unsigned count;
    do {
        uint64_t more;
        count = read_digits(at, &more);
        *sum = *sum * tens[count] + more;
        at += count;
    } while (count == 8 && at < end);
    return at;
}

static const uint8_t *number(const uint8_t *at, const uint8_t *end, Number *n) {
    *n = (Number){.at = at};
    n->negative = *at == '-';
    const uint8_t *from = at += n->negative;
    at = digits_of(at, end, &n->mantissa);
    n->digits = (int)(at - from);
    if (n->digits == 0 || (*from == '0' && n->digits > 1))
        return NULL;
    if (*at == '.') {
        from = ++at;
        at = digits_of(at, end, &n->mantissa);
        n->dots = (int)(at - from);
        if (n->dots == 0)
            return NULL;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        n->has_exponent = 1;
        int less = *at == '-';
        at += less || *at == '+';
        from = at;
        for (; at < end && is_digit(*at); at++)
            if (n->exponent < 100000)
                n->exponent = n->exponent * 10 + (*at - '0');
        if (at == from)
            return NULL;
        if (less)
            n->exponent = -n->exponent;
    }
    /* What has been read behind the end was no number of the payload. */
    n->size = (size_t)(at - n->at);
    return at <= end && n->size <= MOST_NUMBER ? at : NULL;
}

static int is_whole(const Number *n) {
    return !n->dots && !n->has_exponent;
}

static int whole_of(const Number *n, int64_t most, int64_t *value) {
    if (!is_whole(n) || n->digits > 18 || (n->negative && n->mantissa == 0))
        return 0;
    int64_t found = (int64_t)n->mantissa;
    if (found > most + n->negative)
        return 0;
    *value = n->negative ? -found : found;
    return 1;
}

static NOT_INLINE const uint8_t *any_whole(const uint8_t *at, const uint8_t *end, int64_t most,
                                           int64_t *value) {
    Number n;
    at = number(at, end, &n);
    return at != NULL && whole_of(&n, most, value) ? at : NULL;
}

/* A whole number that fits. Most have few digits, and a comma or a bracket behind them. */
static inline const uint8_t *whole(const uint8_t *at, const uint8_t *end, int64_t most,
                                   int64_t *value) {
    /* The least number of so many digits, and with a sign. What is less has no digits, zeros before
       them, or is -0. */
    static const uint32_t least[2][9] = {
        {1, 0, 10, 100, 1000, 10000, 100000, 1000000, UINT32_MAX},
        {1, 1, 10, 100, 1000, 10000, 100000, 1000000, UINT32_MAX},
    };
    uint64_t found;
    int negative = *at == '-';
    unsigned count = read_digits(at + negative, &found);
    const uint8_t *to = at + negative + count;
    if (found < least[negative][count] || (*to != ',' && *to != '}' && *to != ']')) {
        int64_t other = 0;
        at = any_whole(at, end, most, &other);
        *value = other;
        return at;
    }
    *value = negative ? -(int64_t)found : (int64_t)found;
    return to <= end && (int64_t)found <= most + negative ? to : NULL;
}

static const double tens[MOST_PLACES + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                             1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                             1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

#ifdef __SIZEOF_INT128__
#define MOST_POWER 27 /* of five, in 64 bits */

static const uint64_t fives[MOST_POWER + 1] = {
    1, 5, 25, 125, 625, 3125, 15625, 78125, 390625, 1953125, 9765625, 48828125, 244140625,
    1220703125, 6103515625u, 30517578125u, 152587890625u, 762939453125u, 3814697265625u,
    19073486328125u, 95367431640625u, 476837158203125u, 2384185791015625u, 11920928955078125u,
    59604644775390625u, 298023223876953125u, 1490116119384765625u, 7450580596923828125u,
};

/* 2^exponent, which is no subnormal number. */
static inline double power_of_two(int exponent) {
    uint64_t bits = (uint64_t)(DBL_MAX_EXP - 1 + exponent) << (DBL_MANT_DIG - 1);
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* The number of so many bits that is nearest to mantissa * 10^power, which is 5^power * 2^power. */
static double nearest(uint64_t mantissa, int power, int bits) {
    unsigned __int128 value = mantissa;
    int exponent = power, has_rest = 0;
    if (power < 0) {
        int up = 64 + __builtin_clzll(mantissa);
        value <<= up;
        unsigned __int128 whole = value / fives[-power];
        has_rest = whole * fives[-power] != value;
        value = whole;
        exponent -= up;
    } else {
        value *= fives[power];
    }
    uint64_t above = (uint64_t)(value >> 64);
    int size = above ? 128 - __builtin_clzll(above) : 64 - __builtin_clzll((uint64_t)value);
    int less = size - bits;
    if (less > 0) {
        unsigned __int128 half = (unsigned __int128)1 << (less - 1), rest = value & (2 * half - 1);
        value >>= less;
        exponent += less;
        value += (rest > half) | ((rest == half) & (has_rest | (int)(value & 1)));
    }
    return (double)(uint64_t)value * power_of_two(exponent);
}
#endif

/* The number of so many bits that is nearest; of a whole number only the same one. */
static int real_of(const Number *n, int bits, JsonReal real, double *value) {
    int is_short = n->digits + n->dots <= 19, power = n->exponent - n->dots;
    if (is_whole(n) && (!is_short || n->mantissa >> bits || (n->negative && n->mantissa == 0)))
        return 0; /* of a whole number 0 has no sign */
    double found;
    if (is_short && n->mantissa == 0) {
        found = 0;
    } else if (bits == DBL_MANT_DIG && is_short && n->mantissa >> DBL_MANT_DIG == 0 &&
               power >= -MOST_PLACES && power <= MOST_PLACES) {
        /* Both are exact, so the one rounding gives the nearest. */
        found = (double)n->mantissa;
        found = power < 0 ? found / tens[-power] : found * tens[power];
#ifdef __SIZEOF_INT128__
    } else if (is_short && power >= -MOST_POWER && power <= MOST_POWER) {
        found = nearest(n->mantissa, power, bits);
        if (bits == FLT_MANT_DIG && found > FLT_MAX)
            return 0;
#endif
    } else if (bits == DBL_MANT_DIG) {
        char text[MOST_NUMBER + 1];
        memcpy(text, n->at, n->size);
        text[n->size] = 0;
        *value = real(text);
        return isfinite(*value);
    } else {
        return 0;
    }
    *value = n->negative ? -found : found;
    return 1;
}

#endif
