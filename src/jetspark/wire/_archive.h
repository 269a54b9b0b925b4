/* The bytes of a stream's archive, without Python: S2's frames and blocks, their checksums, the
   entries and records inside. Nothing is read outside of the given bytes, whatever they are. */

#ifndef JETSPARK_ARCHIVE_H
#define JETSPARK_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

#define MOST_CONTENT ((size_t)4 << 20) /* of one frame, in an S2 stream */
#define MOST_NAME ((uint64_t)1 << 20)
#define MOST_MESSAGE ((uint64_t)128 << 20)

typedef enum { PART, WHOLE, WRONG, SPOILED } Found; /* SPOILED: a checksum does not match */

/* One frame of an S2 or Snappy stream. */
typedef struct {
    size_t size;             /* of the whole frame; of a PART, so many bytes are wanted, at least */
    size_t content;          /* bytes that it unpacks to */
    const uint8_t *body;     /* behind the checksum and, if compressed, the size */
    size_t body_size;
    uint32_t checksum;
    int identifier, skipped, compressed; /* the first two have no content */
} S2Frame;

Found s2_frame(const uint8_t *at, size_t size, int identified, S2Frame *frame);

/* Unpacks a frame's content and compares its checksum. */
Found s2_content(const S2Frame *frame, uint8_t *to);

uint32_t crc32c(const uint8_t *at, size_t size);
uint32_t crc32c_portable(const uint8_t *at, size_t size);

/* HighwayHash, 64 bits of it. */
typedef struct {
    uint64_t v0[4], v1[4], mul0[4], mul1[4];
    uint8_t rest[32];
    size_t resting;
    int portable; /* without instructions that not every processor has */
} Highway;

void highway_begin(Highway *state, const uint64_t key[4], int portable);
void highway_add(Highway *state, const uint8_t *at, size_t size);
uint64_t highway_end(Highway *state);

typedef struct {
    uint64_t sequence; /* 0: not a message */
    int64_t time;
    const uint8_t *name, *headers, *payload;
    size_t name_size, headers_size, payload_size;
    size_t size; /* of all */
} Stored;

/* An entry of a list of messages (from server 2.15 on). */
Found list_entry(const uint8_t *at, size_t size, Stored *entry);

enum { LIVE, ERASED, TOMBSTONE };

/* A record of a message block (before server 2.15); `key` is that of the block. */
Found block_record(const uint8_t *at, size_t size, const uint64_t key[4], Stored *record, int *mark);

#endif
