/* Only the part of the header that writes death records, and describes the participant in a slot. It compiles for a
 * machine whose C library is not installed here. */
#include <stdint.h>
#include <stddef.h>

#define SHMI_FN static inline __attribute__((unused))
typedef uint64_t shmi_off;
typedef uint32_t shmi_participant_id;
typedef struct shmsync_arena {
    struct {
        uint64_t death_record_off;
    } geo;
} shmsync_arena;
enum {
    SHMI_deathRecordCount = 256, SHMI_deathRecordDeaths = 192, SHMI_deathRecordStride = 128, SHMI_labelBytes = 63, SHMI_hdrDeathRecordsTotal = 8, SHMI_hdrLeftTotal = 16, SHMI_deathRecordSeq = 0, SHMI_deathRecordID = 8,
    SHMI_deathRecordPID = 12, SHMI_deathRecordDied = 16, SHMI_deathRecordFlags = 24, SHMI_deathRecordLeft = 1, SHMI_deathRecordPending = 2, SHMI_slotAdmission = 12, SHMI_admissionPending = 0, SHMI_admissionRefused = 2, SHMI_deathRecordLabel = 64, SHMI_slotPID = 4, SHMI_slotDied = 8, SHMI_slotLabel = 64,
    SHMI_slotStart = 16, SHMI_slotDescribed = 24, SHMI_maxGeneration = 262143
};
#define SHMSYNC_CRASHPOINT(name) ((void)0)
void *memset(void *, int, size_t);
void *memcpy(void *, const void *, size_t);
size_t strlen(const char *);
int getpid(void);
uint32_t *shmi_u32(const shmsync_arena *a, shmi_off off);
uint64_t *shmi_u64(const shmsync_arena *a, shmi_off off);
uint32_t *shmi_slot32(const shmsync_arena *a, uint32_t i, unsigned field);
uint64_t *shmi_slot64(const shmsync_arena *a, uint32_t i, unsigned field);
shmi_participant_id shmi_make_participant_id(uint32_t slot, uint32_t generation);
uint32_t shmi_id_gen(shmi_participant_id n);
shmi_off shmi_slot(const shmsync_arena *a, uint32_t i);

#include "order.h"

void write_record(shmsync_arena *a, const shmsync_participant *p) { shmi_put_death_record(a, 0, p, 0); }
void describe_self(shmsync_arena *a, uint32_t i, uint32_t generation, const char *label) { shmi_describe_self(a, i, generation, label, 0); }
