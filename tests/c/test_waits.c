/* How long ranks that are threads wait for work whose progress nobody sees, and what they say then. */
#include "check.h"
#include "device/pool.h"
#include "library.h"
#include "team.h"

#include <string.h>

static void begun_rank(plait_comm_t *comm, void *context)
{
    (void)context;
    CHECK(library_work(comm, true, 0.6) == PLAIT_OK, "twice the limit: %s",
          plait_error_text());
    CHECK(
        library_work(comm, true, 20.0) == PLAIT_ERR_TIMEOUT &&
            strstr(plait_error_text(),
                   "a library: all ranks have begun it, but it has not ended after") !=
                NULL,
        "%s", plait_error_text());
}

static void missed_rank(plait_comm_t *comm, void *context)
{
    (void)context;
    CHECK(library_work(comm, false, 20.0) == PLAIT_ERR_TIMEOUT &&
              strstr(plait_error_text(), "a library: no other rank came for 0.") !=
                  NULL,
          "%s", plait_error_text());
}

int main(void)
{
    (void)setenv("PLAIT_TIMEOUT", "0.3", 1);
    (void)setenv("PLAIT_LOG", "error", 1); /* not what is late on purpose */
    team_run(2, PLAIT_DIRECT_POINTER, begun_rank, NULL);
    team_run(2, PLAIT_DIRECT_POINTER, missed_rank, NULL);
    (void)plait_pool_trim();
    return report("test_waits");
}
