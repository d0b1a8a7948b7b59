/* Loads an artifact, runs it on made-up inputs, prints its outputs:

       cc run.c -I ../../include -L ../../../target/release -lansc_runtime -o run
       LD_LIBRARY_PATH=../../../target/release ./run model.ansc [THREADS]

   Floats of inputs are 0.5 and 0.25 by turns; everything else is zero. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "ansc.h"

static void check(AnscStatus status, const char *what) {
  if (status == ANSC_STATUS_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, ansc_status_name(status), ansc_error_message());
  exit(1);
}

static void *allocate(size_t bytes) {
  void *memory = calloc(bytes ? bytes : 1, 1);
  if (!memory) {
    fprintf(stderr, "no memory\n");
    exit(1);
  }
  return memory;
}

static void print_port(const char *kind, const AnscPort *port) {
  printf("%s %s: %s[", kind, port->name, ansc_dtype_name(port->dtype));
  for (size_t i = 0; i < port->rank; ++i) printf("%s%zu", i ? ", " : "", port->shape[i]);
  printf("]\n");
}

static AnscInput make_input(const AnscModel *model, size_t index) {
  AnscPort port;
  check(ansc_model_input(model, index, &port), "input");
  print_port("input", &port);
  void *data = allocate(port.bytes);
  if (port.dtype == ANSC_DTYPE_F32)
    for (size_t i = 0; i < port.bytes / sizeof(float); ++i) ((float *)data)[i] = i % 2 ? 0.25f : 0.5f;
  AnscInput input = {port.name, port.dtype, port.shape, port.rank, data, port.bytes};
  return input;
}

static AnscOutput make_output(const AnscModel *model, size_t index) {
  AnscPort port;
  check(ansc_model_output(model, index, &port), "output");
  AnscOutput output = {port.name, port.dtype, port.shape, port.rank, allocate(port.bytes), port.bytes};
  return output;
}

static void print_output(const AnscModel *model, const AnscSession *session, size_t index,
                         const AnscOutput *output) {
  AnscPort port;
  check(ansc_model_output(model, index, &port), "output");
  size_t *shape = allocate(port.rank * sizeof *shape);
  check(ansc_session_output_shape(session, index, shape, port.rank), "shape");
  size_t elements = 1;
  for (size_t i = 0; i < port.rank; ++i) elements *= shape[i];
  port.shape = shape; /* the one of this run */
  print_port("output", &port);
  for (size_t i = 0; i < elements && i < 8; ++i) {
    if (port.dtype == ANSC_DTYPE_F32) printf(" %g", ((const float *)output->data)[i]);
    if (port.dtype == ANSC_DTYPE_I64) printf(" %" PRId64, ((const int64_t *)output->data)[i]);
  }
  printf("\n");
  free(shape);
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s MODEL.ansc [THREADS]\n", argv[0]);
    return 2;
  }
  AnscModel *model = NULL;
  check(ansc_model_load(argv[1], &model), "load");
  printf("model %s, library %s\n", ansc_model_name(model), ansc_version());

  AnscSessionOptions options = {0};
  if (argc > 2) options.threads = strtoul(argv[2], NULL, 10);
  AnscSession *session = NULL;
  check(ansc_session_new(model, &options, &session), "session");

  size_t n_inputs = 0, n_outputs = ansc_model_output_count(model);
  AnscInput *inputs = allocate(ansc_model_input_count(model) * sizeof *inputs);
  for (size_t i = 0; i < ansc_model_input_count(model); ++i) {
    AnscPort port;
    check(ansc_model_input(model, i, &port), "input");
    if (!port.is_bound) inputs[n_inputs++] = make_input(model, i);
  }
  AnscOutput *outputs = allocate(n_outputs * sizeof *outputs);
  for (size_t i = 0; i < n_outputs; ++i) outputs[i] = make_output(model, i);

  check(ansc_session_run(session, inputs, n_inputs, outputs, n_outputs), "run");
  for (size_t i = 0; i < n_outputs; ++i) print_output(model, session, i, &outputs[i]);

  for (size_t i = 0; i < n_inputs; ++i) free((void *)inputs[i].data);
  for (size_t i = 0; i < n_outputs; ++i) free(outputs[i].data);
  free(inputs);
  free(outputs);
  ansc_session_free(session);
  ansc_model_free(model);
  return 0;
}
