/* Ranks of several nodes. At a fence the ranks of a node meet in shared memory. The first rank of each node,
 * its leader, exchanges with the other leaders, through MPI, what the ranks of the nodes show. Everything else
 * goes through MPI alone. In the transport `hosts` (hosts.h) a node is one process, and its ranks are
 * threads. */
#ifndef PLAIT_TRANSPORT_CLUSTER_H
#define PLAIT_TRANSPORT_CLUSTER_H

#include "transport/mpi_link.h"

/* With more ranks, every node would hold, and every rank read, too much data of others; MPI's collectives need
 * less. If there are many ranks, each publishes less. */
enum {
    PLAIT_CLUSTER_RANKS = 256,
    PLAIT_CLUSTER_PUBLISH_BYTES = 2048,
    PLAIT_CLUSTER_ALL_BYTES = 64 << 10 /* of all ranks together */
};

/* Every message between leaders begins with this. */
typedef struct {
    uint64_t number;   /* of the fence */
    uint32_t given_up; /* as in plait_node_header_t; not 0: only the reason follows */
    uint32_t unused;
} plait_cluster_head_t;

typedef struct {
    plait_cluster_head_t head;
    char reason[PLAIT_REASON_BYTES];
} plait_cluster_refusal_t;

/* Nodes are counted from this rank's own node, round to the node before it. */
typedef struct plait_cluster {
    int n_nodes;
    int n_here;  /* ranks of this node */
    int *starts; /* n_nodes + 1: where each node's ranks begin in `ranks` */
    int *ranks;  /* by node; a node's leader is the first of its ranks */
    int64_t publish_bytes;

    /* For a leader: each node's part of the exchange under way begins here, behind the head. */
    int64_t *parts;
    int64_t message_bytes; /* bytes of each of these buffers: */
    char *out, *in;
    plait_cluster_refusal_t refusal;
} plait_cluster_t;

/* Whether ranks on several nodes meet this way; needs the cards. */
bool plait_cluster_is_for(const plait_mpi_link_t *link);

/* The most that a rank may publish at a fence, and the segment that each node needs. */
int64_t plait_cluster_publish_bytes(int n_ranks);
plait_node_shape_t plait_cluster_shape(int n_ranks);

/* Collective: no. leaders: for each rank, the first rank of its node. */
plait_status_t plait_cluster_create(int n_ranks, int rank, const int leaders[],
                                    plait_cluster_t **cluster_p);
void plait_cluster_destroy(plait_cluster_t **cluster_p);

static inline bool plait_cluster_leads(const plait_mpi_link_t *link)
{
    return link->cluster->ranks[0] == link->rank;
}

/* The fence of transport.h. */
plait_status_t plait_cluster_fence(plait_session_t *session, const plait_record_t *mine,
                                   const void *bytes, int64_t n_bytes);

/* For a leader at fence `number`: the boxes of its node are filled before, the others' boxes after it. */
plait_status_t plait_cluster_exchange(plait_mpi_link_t *link, uint64_t number);

/* For a leader whose node has given up: tells the other leaders. */
void plait_cluster_refuse(plait_mpi_link_t *link, uint64_t number);

/* Marks this rank's node as given up, with a reason, unless it is marked already. */
void plait_cluster_give_up(const plait_mpi_link_t *link, uint32_t word,
                           const char *reason);

/* Who has given up, and how, as in plait_node_header_t; 0: nobody. If not 0, the reason may be read. */
uint32_t plait_cluster_given_up(const plait_mpi_link_t *link);

/* Fails in the same way as a rank that has given up, if there is one. */
plait_status_t plait_cluster_check(const plait_mpi_link_t *link);

#endif
