/* A library with one of the functions that plait looks for in libraries of every name. */
int nvrtcVersion(int *major, int *minor);

int nvrtcVersion(int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return 0;
}
