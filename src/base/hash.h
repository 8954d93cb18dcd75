/* 64-bit multiplicative hash over words and bytes: plan keys, never security. */
#ifndef PLAIT_BASE_HASH_H
#define PLAIT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PLAIT_HASH_SEED UINT64_C(0xcbf29ce484222325)

static inline uint64_t plait_hash_word(uint64_t hash, uint64_t word)
{
    hash ^= word;
    hash *= UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

static inline uint64_t plait_hash_bytes(uint64_t hash, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t word;

    for (; n >= sizeof(word); n -= sizeof(word), p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        hash = plait_hash_word(hash, word);
    }
    word = 0;
    if (n > 0) { /* data may be NULL if n is 0 */
        memcpy(&word, p, n);
    }
    return plait_hash_word(hash, word ^ ((uint64_t)n << 56));
}

#endif
