/* Takes the options of pyxis and starts the tasks on the host, each with what it was given in
 * CONTAINER_IMAGE and CONTAINER_MOUNTS: for tests of the container branch of slurm_multinode.sh.
 *
 *     gcc -shared -fPIC -o container_plugin.so container_plugin.c     (Debian: libslurm-dev)
 */
#include <slurm/spank.h>
#include <string.h>

SPANK_PLUGIN(container_stand_in, 1)

/* Kept for the life of srun or slurmstepd. */
static char *image, *mounts;

static int take_image(int value, const char *given, int remote) {
  (void)value, (void)remote;
  image = strdup(given);
  return ESPANK_SUCCESS;
}

static int take_mounts(int value, const char *given, int remote) {
  (void)value, (void)remote;
  mounts = strdup(given);
  return ESPANK_SUCCESS;
}

int slurm_spank_init(spank_t spank, int argc, char **argv) {
  (void)argc, (void)argv;
  struct spank_option options[] = {
      {"container-image", "IMAGE", "[stand-in] the image; tasks run on the host", 1, 0, take_image},
      {"container-mounts", "SRC:DST", "[stand-in] mounts; none is made", 1, 0, take_mounts},
  };
  for (size_t i = 0; i < sizeof options / sizeof *options; ++i)
    if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) return ESPANK_ERROR;
  return ESPANK_SUCCESS;
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv) {
  (void)argc, (void)argv;
  if (image) spank_setenv(spank, "CONTAINER_IMAGE", image, 1);
  if (mounts) spank_setenv(spank, "CONTAINER_MOUNTS", mounts, 1);
  return ESPANK_SUCCESS;
}
