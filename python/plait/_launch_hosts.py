"""What settings and batch systems say about the hosts on which a launcher starts ranks."""

import os

HYDRA_CHOICES = ("HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "HYDRA_HOST", "HYDRA_RMK")
LISTS_OF_HOSTS = ("PBS_NODEFILE", "LSB_HOSTS", "LSB_MCPU_HOSTS", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE")
# Slurm gives its own steps, of a batch script or an interactive shell, the highest numbers.
SPECIAL_STEP = 0xFFFFFFF0
# All ranks need these as `plait run` has them; Open MPI passes none of them to other hosts.
EXPORTED = (
    *("PLAIT_", "JAX_", "XLA_", "MPI4PY_", "PYTHON", "GLIBC_TUNABLES"),
    *("OMP_", "OPENBLAS_", "NPROC", "CUDA_"),
)


def n_slurm_nodes(environment):
    """Nodes of the Slurm job that this process belongs to; 0 outside of one."""
    given = environment.get("SLURM_JOB_NUM_NODES", environment.get("SLURM_NNODES", ""))
    return int(given) if given.isdigit() else 0


def is_in_slurm_step(environment):
    """Whether `srun` has started this process; then its step holds the cores of a further step."""
    step = environment.get("SLURM_STEP_ID", environment.get("SLURM_STEPID", ""))
    return step.isdigit() and int(step) < SPECIAL_STEP


def has_chosen_start(environment):
    """Whether the user has set how or where hydra, MPICH's and Intel's launcher, starts ranks."""
    return any(name.removeprefix("I_MPI_").startswith(HYDRA_CHOICES) for name in environment)


def slurm_environment(family, environment):
    """The settings for a launcher inside a Slurm step, where it starts helpers with another `srun`.

    That `srun` waits silently and for ever for cores which the outer step holds. On one node hydra
    starts ranks without `srun`; on several nodes the steps share the cores.
    """
    variables = {}
    if is_in_slurm_step(environment):
        is_hydra = family in ("mpich", "intel")
        if n_slurm_nodes(environment) != 1:
            variables = {"SLURM_OVERLAP": "1"}
        elif is_hydra and not has_chosen_start(environment):
            name = "I_MPI_HYDRA_BOOTSTRAP" if family == "intel" else "HYDRA_LAUNCHER"
            variables = {name: "fork"}
    return variables


def names_other_hosts(environment):
    """Whether anything that Open MPI's launcher reads may name hosts other than this one."""
    lists = any(environment.get(name) for name in LISTS_OF_HOSTS)
    return lists or n_slurm_nodes(environment) > 1 or any(map(_is_list_of_hosts, environment))


def chooses_btl(launcher, environment):
    """Whether a file of the user or site chooses how Open MPI reaches other ranks."""
    prefix = os.path.dirname(os.path.dirname(launcher))
    files = [
        os.path.join(environment.get("HOME", ""), ".openmpi", "mca-params.conf"),
        os.path.join(prefix, "etc", "openmpi-mca-params.conf"),
        *environment.get("OMPI_MCA_mca_base_param_files", "").replace(":", ",").split(","),
    ]
    return any(map(_names_btl, filter(None, files)))


def _names_btl(path):
    try:
        with open(path, errors="replace") as file:
            return any(line.partition("=")[0].strip() == "btl" for line in file)
    except OSError:
        return False


def export_flags(family, environment):
    """The flags with which a launcher passes this environment to other hosts, as hydra does."""
    names = sorted(name for name in environment if name.startswith(EXPORTED))
    is_needed = family == "openmpi" and names_other_hosts(environment)
    return [word for name in names for word in ("-x", name)] if is_needed else []


def _is_list_of_hosts(name):
    """Whether it is a setting of Open MPI such as PRTE_MCA_prte_default_hostfile."""
    return name.startswith(("OMPI_MCA_", "PRTE_MCA_")) and "host" in name
