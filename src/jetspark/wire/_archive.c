/* See _archive.h. */

#include "_archive.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define ON_X86 1 /* the instructions are looked for at run time */
#endif

static uint32_t le32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t le64(const uint8_t *at) {
    return le32(at) | (uint64_t)le32(at + 4) << 32;
}

/* Parses an unsigned number of up to 64 bits and moves behind it. */
static Found uvarint(const uint8_t **at, const uint8_t *limit, uint64_t *value) {
    uint64_t sum = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (*at == limit)
            return PART;
        uint8_t byte = *(*at)++;
        if (shift == 63 && byte > 1)
            return WRONG;
        sum |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = sum;
            return WHOLE;
        }
    }
    return WRONG;
}

/* -- CRC-32C ------------------------------------------------------------------------------------ */

static uint32_t crc_table[8][256];

/* Called once before there are threads: when the module is imported. */
static void make_crc_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        crc_table[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            crc_table[k][i] = crc_table[k - 1][i] >> 8 ^ crc_table[0][crc_table[k - 1][i] & 0xFF];
}

uint32_t crc32c_portable(const uint8_t *at, size_t size) {
    if (crc_table[0][1] == 0)
        make_crc_table();
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 8; at += 8, size -= 8) {
        uint32_t low = crc ^ le32(at), high = le32(at + 4);
        crc = crc_table[7][low & 0xFF] ^ crc_table[6][low >> 8 & 0xFF] ^
              crc_table[5][low >> 16 & 0xFF] ^ crc_table[4][low >> 24] ^
              crc_table[3][high & 0xFF] ^ crc_table[2][high >> 8 & 0xFF] ^
              crc_table[1][high >> 16 & 0xFF] ^ crc_table[0][high >> 24];
    }
    for (; size; at++, size--)
        crc = crc >> 8 ^ crc_table[0][(crc ^ *at) & 0xFF];
    return ~crc;
}

#ifdef ON_X86
/* In assembly: compilers disagree about which target the intrinsics of crc32 need. */
static uint32_t crc32c_sse42(const uint8_t *at, size_t size) {
    uint64_t crc = 0xFFFFFFFFu;
    for (; size >= 8; at += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        __asm__("crc32q %1, %0" : "+r"(crc) : "r"(word));
    }
    for (; size; at++, size--)
        __asm__("crc32b %1, %0" : "+r"(crc) : "q"(*at));
    return ~(uint32_t)crc;
}
#endif

uint32_t crc32c(const uint8_t *at, size_t size) {
#ifdef ON_X86
    if (__builtin_cpu_supports("sse4.2"))
        return crc32c_sse42(at, size);
#endif
    return crc32c_portable(at, size);
}

/* -- S2 ------------------------------------------------------------------------------------------- */

#define HEAD 4
#define CRC 4

Found s2_frame(const uint8_t *at, size_t size, int identified, S2Frame *frame) {
    frame->size = HEAD;
    if (size < HEAD)
        return PART;
    uint8_t kind = at[0];
    size_t length = le32(at) >> 8;
    frame->size = HEAD + length;
    frame->content = 0;
    frame->identifier = kind == 0xFF;
    frame->skipped = kind > 1 && !frame->identifier;
    /* What can be told from the head is told before the rest is waited for. */
    if (frame->identifier ? length != 6 : !identified || (kind > 1 && kind < 0x80))
        return WRONG;
    if (kind <= 1 && (length < CRC || (kind == 1 && length - CRC > MOST_CONTENT) ||
                      length > CRC + 16 + MOST_CONTENT + MOST_CONTENT / 6))
        return WRONG;
    if (size < frame->size)
        return PART;
    const uint8_t *body = at + HEAD, *limit = body + length;
    if (frame->identifier)
        return memcmp(body, "S2sTwO", 6) == 0 || memcmp(body, "sNaPpY", 6) == 0 ? WHOLE : WRONG;
    if (frame->skipped)
        return WHOLE;
    frame->checksum = le32(body);
    body += CRC;
    frame->compressed = kind == 0;
    uint64_t content = length - CRC;
    if (frame->compressed && (uvarint(&body, limit, &content) != WHOLE || content > MOST_CONTENT))
        return WRONG;
    frame->content = (size_t)content;
    frame->body = body;
    frame->body_size = (size_t)(limit - body);
    return WHOLE;
}

#define STRIDE 16

/* Copies whole strides, the last one beyond `length`: for areas that have STRIDE bytes more, and lie
 * STRIDE apart. Most copies are of a few bytes, and memcpy's call would cost more than they do. */
static inline void copy_strides(uint8_t *to, const uint8_t *from, size_t length) {
    for (size_t i = 0; i < length; i += STRIDE)
        memcpy(to + i, from + i, STRIDE);
}

/* Copies bytes that were written `offset` bytes before; the areas may overlap. */
static inline void copy_back(uint8_t *to, size_t offset, size_t length, size_t room) {
    const uint8_t *from = to - offset;
    if (offset >= STRIDE && room >= length + STRIDE) {
        copy_strides(to, from, length);
    } else if (offset >= 8 && room >= length + 8) {
        for (size_t i = 0; i < length; i += 8)
            memcpy(to + i, from + i, 8);
    } else if (offset == 1) {
        memset(to, *from, length);
    } else {
        for (size_t i = 0; i < length; i++)
            to[i] = from[i];
    }
}

static int s2_block(const uint8_t *at, const uint8_t *limit, uint8_t *to, size_t size) {
    size_t done = 0, offset = 0;
    while (at < limit) {
        uint8_t tag = *at++;
        size_t left = (size_t)(limit - at), length;
        if ((tag & 3) == 0) {
            length = tag >> 2;
            if (length >= 60) {
                size_t extra = length - 59;
                if (left < extra)
                    return 0;
                length = 0;
                for (size_t i = 0; i < extra; i++)
                    length |= (size_t)at[i] << (8 * i);
                at += extra;
                left -= extra;
            }
            length++;
            if (length > left || length > size - done)
                return 0;
            if (length <= 4 * STRIDE && left >= length + STRIDE && size - done >= length + STRIDE)
                copy_strides(to + done, at, length);
            else
                memcpy(to + done, at, length);
            at += length;
            done += length;
            continue;
        }
        if ((tag & 3) == 1) {
            if (left < 1)
                return 0;
            size_t distance = (size_t)(tag & 0xE0) << 3 | at[0];
            at++;
            length = tag >> 2 & 7;
            if (distance) {
                offset = distance;
            } else if (length >= 5) { /* S2: the offset before, and longer lengths */
                static const size_t add[] = {4, (size_t)1 << 8, (size_t)1 << 16};
                size_t extra = length - 4, more = 0;
                if (left - 1 < extra)
                    return 0;
                for (size_t i = 0; i < extra; i++)
                    more |= (size_t)at[i] << (8 * i);
                length = more + add[extra - 1];
                at += extra;
            }
            length += 4;
        } else {
            size_t width = (tag & 3) == 2 ? 2 : 4;
            if (left < width)
                return 0;
            length = 1 + (size_t)(tag >> 2);
            offset = width == 2 ? (size_t)at[0] | (size_t)at[1] << 8 : le32(at);
            at += width;
        }
        if (offset == 0 || offset > done || length > size - done)
            return 0;
        copy_back(to + done, offset, length, size - done);
        done += length;
    }
    return done == size;
}

Found s2_content(const S2Frame *frame, uint8_t *to) {
    if (frame->identifier || frame->skipped)
        return WHOLE;
    if (!frame->compressed)
        memcpy(to, frame->body, frame->content);
    else if (!s2_block(frame->body, frame->body + frame->body_size, to, frame->content))
        return WRONG;
    uint32_t crc = crc32c(to, frame->content);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u == frame->checksum ? WHOLE : SPOILED;
}

/* -- HighwayHash ---------------------------------------------------------------------------------- */

static inline uint64_t halves_swapped(uint64_t x) {
    return x >> 32 | x << 32;
}

void highway_begin(Highway *state, const uint64_t key[4], int portable) {
    static const uint64_t mul0[4] = {0xdbe6d5d5fe4cce2f, 0xa4093822299f31d0, 0x13198a2e03707344,
                                     0x243f6a8885a308d3};
    static const uint64_t mul1[4] = {0x3bd39e10cb0ef593, 0xc0acf169b5f18a8c, 0xbe5466cf34e90c6c,
                                     0x452821e638d01377};
    for (int i = 0; i < 4; i++) {
        state->mul0[i] = mul0[i];
        state->mul1[i] = mul1[i];
        state->v0[i] = mul0[i] ^ key[i];
        state->v1[i] = mul1[i] ^ halves_swapped(key[i]);
    }
    state->resting = 0;
    state->portable = portable;
#ifdef ON_X86
    state->portable |= !__builtin_cpu_supports("avx2");
#endif
}

static inline void zipper_add(uint64_t b, uint64_t a, uint64_t *to_b, uint64_t *to_a) {
    *to_a += (((a & 0xff000000ull) | (b & 0xff00000000ull)) >> 24) |
             (((a & 0xff0000000000ull) | (b & 0xff000000000000ull)) >> 16) | (a & 0xff0000ull) |
             ((a & 0xff00ull) << 32) | ((b & 0xff00000000000000ull) >> 8) | (a << 56);
    *to_b += (((b & 0xff000000ull) | (a & 0xff00000000ull)) >> 24) | (b & 0xff0000ull) |
             ((b & 0xff0000000000ull) >> 16) | ((b & 0xff00ull) << 24) |
             ((a & 0xff000000000000ull) >> 8) | ((b & 0xffull) << 48) | (a & 0xff00000000000000ull);
}

static inline void highway_update(Highway *state, const uint64_t lanes[4]) {
    uint64_t *v0 = state->v0, *v1 = state->v1;
    for (int i = 0; i < 4; i++) {
        v1[i] += state->mul0[i] + lanes[i];
        state->mul0[i] ^= (v1[i] & 0xFFFFFFFFu) * (v0[i] >> 32);
        v0[i] += state->mul1[i];
        state->mul1[i] ^= (v0[i] & 0xFFFFFFFFu) * (v1[i] >> 32);
    }
    zipper_add(v1[1], v1[0], &v0[1], &v0[0]);
    zipper_add(v1[3], v1[2], &v0[3], &v0[2]);
    zipper_add(v0[1], v0[0], &v1[1], &v1[0]);
    zipper_add(v0[3], v0[2], &v1[3], &v1[2]);
}

static void packets_portable(Highway *state, const uint8_t *at, size_t count) {
    for (; count; at += 32, count--) {
        uint64_t lanes[4] = {le64(at), le64(at + 8), le64(at + 16), le64(at + 24)};
        highway_update(state, lanes);
    }
}

static void finish_portable(Highway *state) {
    for (int i = 0; i < 4; i++) {
        uint64_t lanes[4] = {halves_swapped(state->v0[2]), halves_swapped(state->v0[3]),
                             halves_swapped(state->v0[0]), halves_swapped(state->v0[1])};
        highway_update(state, lanes);
    }
}

#ifdef ON_X86
#define AVX2 __attribute__((target("avx2")))

typedef struct {
    __m256i v0, v1, mul0, mul1;
} Lanes;

AVX2 static inline Lanes loaded(const Highway *state) {
    return (Lanes){_mm256_loadu_si256((const __m256i *)state->v0),
                   _mm256_loadu_si256((const __m256i *)state->v1),
                   _mm256_loadu_si256((const __m256i *)state->mul0),
                   _mm256_loadu_si256((const __m256i *)state->mul1)};
}

AVX2 static inline void kept(Highway *state, Lanes x) {
    _mm256_storeu_si256((__m256i *)state->v0, x.v0);
    _mm256_storeu_si256((__m256i *)state->v1, x.v1);
    _mm256_storeu_si256((__m256i *)state->mul0, x.mul0);
    _mm256_storeu_si256((__m256i *)state->mul1, x.mul1);
}

AVX2 static inline Lanes updated(Lanes x, __m256i packet) {
    const __m256i zipper = _mm256_set_epi64x(0x070806090D0A040B, 0x000F010E05020C03,
                                             0x070806090D0A040B, 0x000F010E05020C03);
    x.v1 = _mm256_add_epi64(x.v1, _mm256_add_epi64(x.mul0, packet));
    x.mul0 = _mm256_xor_si256(x.mul0, _mm256_mul_epu32(x.v1, _mm256_srli_epi64(x.v0, 32)));
    x.v0 = _mm256_add_epi64(x.v0, x.mul1);
    x.mul1 = _mm256_xor_si256(x.mul1, _mm256_mul_epu32(x.v0, _mm256_srli_epi64(x.v1, 32)));
    x.v0 = _mm256_add_epi64(x.v0, _mm256_shuffle_epi8(x.v1, zipper));
    x.v1 = _mm256_add_epi64(x.v1, _mm256_shuffle_epi8(x.v0, zipper));
    return x;
}

AVX2 static void packets_avx2(Highway *state, const uint8_t *at, size_t count) {
    Lanes x = loaded(state);
    for (; count; at += 32, count--)
        x = updated(x, _mm256_loadu_si256((const __m256i *)at));
    kept(state, x);
}

AVX2 static void finish_avx2(Highway *state) {
    const __m256i order = _mm256_set_epi64x(0x0000000200000003, 0x0000000000000001,
                                            0x0000000600000007, 0x0000000400000005);
    Lanes x = loaded(state);
    for (int i = 0; i < 4; i++)
        x = updated(x, _mm256_permutevar8x32_epi32(x.v0, order));
    kept(state, x);
}
#endif

static void highway_packets(Highway *state, const uint8_t *at, size_t count) {
#ifdef ON_X86
    if (!state->portable) {
        packets_avx2(state, at, count);
        return;
    }
#endif
    packets_portable(state, at, count);
}

void highway_add(Highway *state, const uint8_t *at, size_t size) {
    if (state->resting) {
        size_t step = 32 - state->resting < size ? 32 - state->resting : size;
        memcpy(state->rest + state->resting, at, step);
        state->resting += step;
        at += step;
        size -= step;
        if (state->resting < 32)
            return;
        highway_packets(state, state->rest, 1);
        state->resting = 0;
    }
    highway_packets(state, at, size / 32);
    state->resting = size % 32;
    if (state->resting)
        memcpy(state->rest, at + size - state->resting, state->resting);
}

static void highway_rest(Highway *state) {
    size_t size = state->resting, by_4 = size & 3;
    uint8_t packet[32] = {0};
    const uint8_t *behind = state->rest + (size & ~(size_t)3);
    for (int i = 0; i < 4; i++) {
        state->v0[i] += ((uint64_t)size << 32) + size;
        uint32_t low = (uint32_t)state->v1[i], high = (uint32_t)(state->v1[i] >> 32);
        low = low << size | low >> (32 - size);
        high = high << size | high >> (32 - size);
        state->v1[i] = low | (uint64_t)high << 32;
    }
    memcpy(packet, state->rest, size & ~(size_t)3);
    if (size & 16) {
        for (int i = 0; i < 4; i++)
            packet[28 + i] = behind[(int)by_4 + i - 4];
    } else if (by_4) {
        packet[16] = behind[0];
        packet[17] = behind[by_4 >> 1];
        packet[18] = behind[by_4 - 1];
    }
    highway_packets(state, packet, 1);
}

uint64_t highway_end(Highway *state) {
    if (state->resting)
        highway_rest(state);
#ifdef ON_X86
    if (!state->portable)
        finish_avx2(state);
    else
#endif
        finish_portable(state);
    return state->v0[0] + state->v1[0] + state->mul0[0] + state->mul1[0];
}

/* -- lists of messages -------------------------------------------------------------------------------- */

Found list_entry(const uint8_t *at, size_t size, Stored *entry) {
    const uint8_t *begin = at, *limit = at + size;
    uint64_t name, time, headers, payload;
    uint64_t *numbers[] = {&name, &time, &entry->sequence, &headers, &payload};
    for (int i = 0; i < 5; i++) {
        Found found = uvarint(&at, limit, numbers[i]);
        if (found != WHOLE)
            return found;
    }
    if (name > MOST_NAME || headers > MOST_MESSAGE || payload > MOST_MESSAGE - headers ||
        entry->sequence > INT64_MAX)
        return WRONG;
    if ((uint64_t)(limit - at) < name + headers + payload)
        return PART;
    entry->time = (int64_t)(time >> 1 ^ (0 - (time & 1)));
    entry->name = at;
    entry->name_size = (size_t)name;
    entry->headers = at + name;
    entry->headers_size = (size_t)headers;
    entry->payload = entry->headers + headers;
    entry->payload_size = (size_t)payload;
    entry->size = (size_t)(entry->payload + payload - begin);
    return WHOLE;
}

/* -- message blocks ------------------------------------------------------------------------------------ */

#define RECORD_HEAD 22 /* length, sequence, time, length of the subject */
#define RECORD_HASH 8
#define HEADED 0x80000000u
#define ERASED_BIT ((uint64_t)1 << 63)
#define TOMBSTONE_BIT ((uint64_t)1 << 62)

Found block_record(const uint8_t *at, size_t size, const uint64_t key[4], Stored *record, int *mark) {
    if (size < RECORD_HEAD)
        return PART;
    uint32_t length = le32(at);
    int headed = (length & HEADED) != 0;
    length &= ~HEADED;
    size_t subject = (size_t)at[20] | (size_t)at[21] << 8;
    if (length < RECORD_HEAD + RECORD_HASH + subject + (headed ? 4 : 0) || length > MOST_MESSAGE)
        return WRONG;
    if (size < length)
        return PART;
    const uint8_t *text = at + RECORD_HEAD, *hash = at + length - RECORD_HASH;
    const uint8_t *rest = text + subject + (headed ? 4 : 0);
    size_t rest_size = (size_t)(hash - rest), headers = headed ? le32(text + subject) : 0;
    if (headers > rest_size)
        return WRONG;
    Highway state;
    highway_begin(&state, key, 0);
    highway_add(&state, at + 4, 16);
    highway_add(&state, text, subject);
    highway_add(&state, rest, rest_size);
    if (highway_end(&state) != le64(hash))
        return SPOILED;
    uint64_t sequence = le64(at + 4);
    *mark = sequence & TOMBSTONE_BIT ? TOMBSTONE : sequence & ERASED_BIT || !sequence ? ERASED : LIVE;
    record->sequence = sequence & ~(ERASED_BIT | TOMBSTONE_BIT);
    record->time = (int64_t)le64(at + 12);
    record->name = text;
    record->name_size = subject;
    record->headers = rest;
    record->headers_size = headers;
    record->payload = rest + headers;
    record->payload_size = rest_size - headers;
    record->size = length;
    return WHOLE;
}
