#include "base/flight.h"

#include "base/hash.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Places of texts. A program whose sizes change makes texts without end, so the last places are for names
 * alone. Some places stay free, so that the search for an absent text ends soon. */
enum {
    N_KNOWN = 1 << 14,
    MAX_TEXTS = N_KNOWN / 2,
    MAX_NAMES = MAX_TEXTS + N_KNOWN / 8,
    TEXT_CHUNK = 1 << 14,
    NAME_BYTES = 64
};

static plait_record_file_t file = {.fd = PLAIT_RECORD_CLOSED};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(plait_ring_t *) rings[PLAIT_RINGS];
static plait_ring_t spare_ring; /* for ranks without memory for a ring */

static uint32_t known[N_KNOWN]; /* numbers of texts, by hash */
static int n_known;
static uint32_t n_text = 1;  /* bytes of texts so far */
static int64_t n_text_there; /* bytes that there is room for */

void plait_flight_open(void)
{
    if (plait_record_open_flight(&file, PLAIT_FLIGHT_BYTES)) {
        plait_record_begin(file.header);
        file.header->entry_bytes = (int32_t)sizeof(plait_flight_entry_t);
        file.header->n_rings = PLAIT_RINGS;
        file.header->ring_room = PLAIT_RING_ROOM;
        file.header->text_offset = (int32_t)PLAIT_FLIGHT_TEXTS;
        file.header->text_bytes = (int32_t)PLAIT_TEXT_BYTES;
    }
}

void plait_flight_forget(void)
{
    (void)pthread_mutex_init(&mutex, NULL);
    plait_record_forget(&file);
}

plait_record_file_t *plait_flight_file(void)
{
    return &file;
}

static plait_ring_t *open_ring(int track)
{
    int64_t offset =
        PLAIT_RECORD_HEADER_BYTES + (int64_t)track * (int64_t)sizeof(plait_ring_t);
    plait_ring_t *ring = &spare_ring;

    (void)pthread_mutex_lock(&mutex);
    if (file.header != NULL &&
        plait_record_reserve(&file, offset, (int64_t)sizeof(plait_ring_t))) {
        ring = (plait_ring_t *)(void *)((char *)file.header + offset);
    } else if (file.header != NULL) {
        atomic_store(&file.header->lacks_rings, 1);
    }
    atomic_store_explicit(&rings[track], ring, memory_order_release);
    (void)pthread_mutex_unlock(&mutex);
    return ring;
}

plait_ring_t *plait_flight_ring(int track)
{
    unsigned t = (unsigned)track % PLAIT_RINGS;
    plait_ring_t *ring = atomic_load_explicit(&rings[t], memory_order_acquire);

    return (ring != NULL) ? ring : open_ring((int)t);
}

const char *plait_flight_text_at(uint32_t number)
{
    return (file.header != NULL && number > 0)
               ? (const char *)file.header + PLAIT_FLIGHT_TEXTS + number
               : "";
}

/* Under the mutex: appends a text; 0 if there is no room. */
static uint32_t add_text(const char *text)
{
    size_t n_bytes = strlen(text) + 1;
    uint32_t number = 0;

    while (file.header != NULL && n_text + n_bytes > (size_t)n_text_there &&
           n_text_there < PLAIT_TEXT_BYTES &&
           plait_record_reserve(&file, PLAIT_FLIGHT_TEXTS + n_text_there, TEXT_CHUNK)) {
        n_text_there += TEXT_CHUNK;
    }
    if (file.header != NULL && n_text + n_bytes <= (size_t)n_text_there) {
        number = n_text;
        memcpy((char *)file.header + PLAIT_FLIGHT_TEXTS + number, text, n_bytes);
        n_text += (uint32_t)n_bytes;
    }
    return number;
}

/* Under the mutex: the number of a text. A new number is given if there are fewer than `most`; else 0. */
static uint32_t number_of(const char *text, int most)
{
    uint64_t hash = plait_hash_bytes(PLAIT_HASH_SEED, text, strlen(text));
    uint32_t number = 0;
    bool is_done = text[0] == '\0';

    for (uint64_t i = 0; i < N_KNOWN && !is_done; i++) {
        uint32_t *place = &known[(hash + i) % N_KNOWN];
        if (*place == 0 && n_known < most) {
            *place = add_text(text);
            n_known += *place != 0;
        }
        is_done = *place == 0 || strcmp(plait_flight_text_at(*place), text) == 0;
        number = is_done ? *place : 0;
    }
    return number;
}

uint32_t plait_flight_text(const char *text)
{
    char name[NAME_BYTES];

    (void)pthread_mutex_lock(&mutex);
    uint32_t number = number_of(text, MAX_TEXTS);
    if (number == 0) { /* "bcast" of "bcast(float64[3], root 0)" */
        (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, " ("), text);
        number = number_of(name, MAX_NAMES);
    }
    (void)pthread_mutex_unlock(&mutex);
    return number;
}

bool plait_flight_is_well(void)
{
    bool is_well = true;

    for (int t = 0; t < PLAIT_RINGS; t++) {
        plait_ring_t *ring = atomic_load(&rings[t]);
        uint64_t n = (ring != NULL) ? atomic_load(&ring->n) : 0;
        const plait_flight_entry_t *last =
            (n > 0) ? &ring->entries[(n - 1) % PLAIT_RING_ROOM] : NULL;
        is_well = is_well && (last == NULL || atomic_load(&last->status) == PLAIT_OK);
    }
    return is_well;
}
