#include "transport/cluster.h"

#include "base/alloc.h"
#include "base/checked.h"

/* At least the bytes that a rank shows after a failure. */
enum { LEAST_PUBLISH_BYTES = 256 };

int64_t plait_cluster_publish_bytes(int n_ranks)
{
    int64_t each = PLAIT_CLUSTER_ALL_BYTES / n_ranks / 64 * 64;

    return plait_max(LEAST_PUBLISH_BYTES, plait_min(each, PLAIT_CLUSTER_PUBLISH_BYTES));
}

plait_node_shape_t plait_cluster_shape(int n_ranks)
{
    return (plait_node_shape_t){
        .n_ranks = n_ranks,
        .box_bytes = PLAIT_BOX_BYTES(plait_cluster_publish_bytes(n_ranks))};
}

bool plait_cluster_is_for(const plait_mpi_link_t *link)
{
    bool is_shared = false;

    for (int r = 0; r < link->size; r++) {
        is_shared = is_shared || link->cards[r].node_size > 1;
    }
    return is_shared && link->size <= PLAIT_CLUSTER_RANKS;
}

/* Lists the nodes from this rank's own on, each with its ranks. */
static void list_ranks(int n_ranks, int rank, const int leaders[],
                       plait_cluster_t *cluster)
{
    int own = leaders[rank];
    int n = 0;

    for (int i = 0; i < n_ranks; i++) {
        int leader = (own + i) % n_ranks;
        if (leaders[leader] != leader) {
            continue;
        }
        cluster->starts[cluster->n_nodes++] = n;
        for (int r = leader; r < n_ranks; r++) {
            if (leaders[r] == leader) {
                cluster->ranks[n++] = r;
            }
        }
    }
    cluster->starts[cluster->n_nodes] = n;
    cluster->n_here = cluster->starts[1];
}

/* Room for all ranks' records, or for what they publish beyond their records. */
static plait_status_t reserve_messages(int n_ranks, plait_cluster_t *cluster)
{
    plait_status_t status = PLAIT_OK;
    int64_t each = plait_max((int64_t)sizeof(plait_record_t), cluster->publish_bytes);

    cluster->message_bytes =
        plait_max((int64_t)(sizeof(plait_cluster_head_t)) + n_ranks * each,
                  (int64_t)sizeof(plait_cluster_refusal_t));
    cluster->parts = plait_alloc(n_ranks + 1, sizeof(*cluster->parts));
    cluster->out = plait_alloc(cluster->message_bytes, 1);
    cluster->in = plait_alloc(cluster->message_bytes, 1);
    PLAIT_CHECK(cluster->parts != NULL && cluster->out != NULL && cluster->in != NULL,
                PLAIT_ERR_NO_MEMORY, "no memory for the fences of %d ranks", n_ranks);
done:
    return status;
}

plait_status_t plait_cluster_create(int n_ranks, int rank, const int leaders[],
                                    plait_cluster_t **cluster_p)
{
    plait_status_t status = PLAIT_OK;
    plait_cluster_t *cluster = plait_alloc(1, sizeof(*cluster));

    PLAIT_CHECK(cluster != NULL, PLAIT_ERR_NO_MEMORY, "no memory for a communicator");
    cluster->publish_bytes = plait_cluster_publish_bytes(n_ranks);
    cluster->starts = plait_alloc(n_ranks + 1, sizeof(*cluster->starts));
    cluster->ranks = plait_alloc(n_ranks, sizeof(*cluster->ranks));
    PLAIT_CHECK(cluster->starts != NULL && cluster->ranks != NULL, PLAIT_ERR_NO_MEMORY,
                "no memory for a communicator of %d ranks", n_ranks);
    list_ranks(n_ranks, rank, leaders, cluster);
    if (cluster->ranks[0] == rank) {
        PLAIT_TRY(reserve_messages(n_ranks, cluster));
    }
    *cluster_p = cluster;
    cluster = NULL;
done:
    plait_cluster_destroy(&cluster);
    return status;
}

void plait_cluster_destroy(plait_cluster_t **cluster_p)
{
    plait_cluster_t *cluster = *cluster_p;

    *cluster_p = NULL;
    if (cluster != NULL) {
        plait_free(cluster->in);
        plait_free(cluster->out);
        plait_free(cluster->parts);
        plait_free(cluster->ranks);
        plait_free(cluster->starts);
        plait_free(cluster);
    }
}
