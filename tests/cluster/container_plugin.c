/* Takes the options of pyxis and starts the tasks on the host, each with what it was given in
 * CONTAINER_IMAGE and CONTAINER_MOUNTS: for tests of the container branch of slurm_multinode.sh.
 *
 * Where pyxis and enroot would not start a container, it starts no task: an image that does not begin
 * with / or . is a registry's, of which there is none here; and mounts are lines of fstab, in which
 * a space ends a path, and \040 is one (https://github.com/NVIDIA/pyxis/issues/133).
 *
 *     gcc -shared -fPIC -o container_plugin.so container_plugin.c     (Debian: libslurm-dev)
 */
#include <mntent.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* What enroot would mount, SOURCE:TARGET[,...] without flags; 0 if all sources exist. */
static int read_mounts(const char *given, char *paths, size_t size) {
  char text[4096], line[4096], buffer[4096], *rest = text, *each;
  size_t length = 0;
  snprintf(text, sizeof text, "%s", given);
  while ((each = strsep(&rest, ","))) {
    char *source = strsep(&each, ":"), *target = strsep(&each, ":");
    if (!target) target = source;
    snprintf(line, sizeof line, "%s %s none rbind\n", source, target);
    FILE *fstab = fmemopen(line, strlen(line), "r");
    struct mntent entry;
    if (!fstab || !getmntent_r(fstab, &entry, buffer, sizeof buffer)) return -1;
    fclose(fstab);
    if (access(entry.mnt_fsname, F_OK)) {
      slurm_error("stand-in: failed to mount: %s at %s: %m", entry.mnt_fsname, entry.mnt_dir);
      return -1;
    }
    length += snprintf(paths + length, size - length, "%s%s:%s", length ? "," : "",
                       entry.mnt_fsname, entry.mnt_dir);
    if (length >= size) return -1;
  }
  return 0;
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
  char paths[4096];
  if (image) {
    if (!strchr("./", *image) || access(image, F_OK)) {
      slurm_error("stand-in: failed to import the image %s", image);
      return -1;
    }
    spank_setenv(spank, "CONTAINER_IMAGE", image, 1);
  }
  if (mounts) {
    if (read_mounts(mounts, paths, sizeof paths)) return -1;
    spank_setenv(spank, "CONTAINER_MOUNTS", paths, 1);
  }
  return ESPANK_SUCCESS;
}
