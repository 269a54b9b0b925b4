/* Several bytes of a text at once, without a branch for each of them.

   They are loaded as a word of which the lowest byte is the first, whatever the machine. Loads go
   beyond what is looked for, so that there must be memory behind a text: AHEAD bytes, of which
   nothing is taken. */

#ifndef JETSPARK_WORDS_H
#define JETSPARK_WORDS_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define HAS_SSE2 1
#endif
#ifdef _MSC_VER
#include <intrin.h>
#endif

#ifdef _MSC_VER
#define NOT_INLINE __declspec(noinline)
#define INLINE __forceinline
#else
#define NOT_INLINE __attribute__((noinline))
#define INLINE inline __attribute__((always_inline))
#endif

#define AHEAD 32
#define EACH(byte) (0x0101010101010101u * (uint64_t)(byte))

static inline uint64_t load8(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* The number of the lowest bit; not of 0. */
static inline unsigned lowest_bit(uint64_t bits) {
#ifdef _MSC_VER
    unsigned long number;
    _BitScanForward64(&number, bits);
    return number;
#else
    return (unsigned)__builtin_ctzll(bits);
#endif
}

/* Whether a text begins with another one, of at least one byte, behind which there are 7 more. */
static inline int begins_with(const uint8_t *at, const uint8_t *with, size_t size) {
    for (; size > 8; size -= 8, at += 8, with += 8)
        if (load8(at) != load8(with))
            return 0;
    return (load8(at) ^ load8(with)) << (64 - 8 * size) == 0;
}

/* How many of the next 16 bytes of a JSON string come before a quote, a backslash, or a control
   character; with `ascii` also before one that is not ASCII. */
static inline unsigned count_plain(const uint8_t *at, int ascii) {
#ifdef HAS_SSE2
    __m128i bytes = _mm_loadu_si128((const __m128i *)at);
    __m128i quotes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('"'));
    __m128i slashes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'));
    __m128i others = ascii ? _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20)) /* not ASCII: negative */
                           : _mm_cmpeq_epi8(bytes, _mm_min_epu8(bytes, _mm_set1_epi8(0x1F)));
    __m128i ends = _mm_or_si128(_mm_or_si128(quotes, slashes), others);
    return lowest_bit((uint64_t)_mm_movemask_epi8(ends) | 1 << 16);
#else
    for (unsigned from = 0; from < 16; from += 8) {
        uint64_t word = load8(at + from), quotes = word ^ EACH('"'), slashes = word ^ EACH('\\');
        uint64_t ends = ((word - EACH(0x20)) | (quotes - EACH(1)) | (slashes - EACH(1))) & ~word;
        ends = (ascii ? ends | word : ends) & EACH(0x80);
        /* The lowest of these bytes is one; of those above it some may be plain. */
        if (ends)
            return from + lowest_bit(ends) / 8;
    }
    return 16;
#endif
}

/* Reads up to eight digits: their value, and how many come before the first other byte. */
static inline unsigned read_digits(const uint8_t *at, uint64_t *value) {
    uint64_t digits = load8(at) ^ EACH('0');
    uint64_t others = ((digits + EACH(0x76)) | digits) & EACH(0x80); /* from the lowest one on */
    unsigned count = 8;
    if (others) {
        count = lowest_bit(others) / 8;
        digits = digits << (56 - 8 * count) << 8; /* zeros before them */
    }
    /* Tens and ones together, then hundreds, then all. */
    digits = digits * 10 + (digits >> 8);
    *value = ((digits & 0x000000FF000000FF) * (100 + (1000000ull << 32)) +
              (digits >> 16 & 0x000000FF000000FF) * (1 + (10000ull << 32))) >>
             32;
    return count;
}

#endif
