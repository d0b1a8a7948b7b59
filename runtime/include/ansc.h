/* ansc: runs models compiled by `ansc compile`.

   Link with -lansc_runtime. Of the static library also: -lm -lpthread -ldl -lgcc_s.

   Functions return an AnscStatus. Unless it is ANSC_STATUS_OK, nothing was written through the
   result pointers, and ansc_error_message() says what happened. Null where a handle or a result is
   needed is an error, never a crash; freeing null is nothing. No exception or panic leaves a
   function.

   Threads: a model may be used by any number of threads at once. A session runs in one thread at a
   time, in any one; a call while it runs in another gives ANSC_STATUS_BUSY. Different sessions, of
   one model or of several, run at the same time. Messages of errors belong to their thread. */

#ifndef ANSC_H
#define ANSC_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// The outcome of a call. Everything but `ANSC_STATUS_OK` leaves a message for
// `ansc_error_message`.
enum AnscStatus
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It was done.
  ANSC_STATUS_OK = 0,
  // The call itself is wrong: a null pointer, an index out of range, memory that overlaps.
  ANSC_STATUS_ARGUMENT = 1,
  // The file cannot be read, or is no undamaged artifact of a version that this library reads.
  ANSC_STATUS_ARTIFACT = 2,
  // This machine cannot run the artifact, or has not the memory or the threads for it.
  ANSC_STATUS_MACHINE = 3,
  // The inputs, outputs or states do not fit the model: names, element types, shapes, values. Or
  // the session has no room for what a run would add to its states.
  ANSC_STATUS_DATA = 4,
  // The session is running in another thread.
  ANSC_STATUS_BUSY = 5,
  // An error of this library. It never shows for a correct one; please report it.
  ANSC_STATUS_INTERNAL = 6,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum AnscStatus AnscStatus;
#else
typedef uint32_t AnscStatus;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Types of elements.
enum AnscDtype
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // One byte, 0 or 1.
  ANSC_DTYPE_BOOL = 0,
  // An unsigned integer of 8 bits.
  ANSC_DTYPE_U8 = 1,
  // An unsigned integer of 16 bits.
  ANSC_DTYPE_U16 = 2,
  // An unsigned integer of 32 bits.
  ANSC_DTYPE_U32 = 3,
  // An unsigned integer of 64 bits.
  ANSC_DTYPE_U64 = 4,
  // A signed integer of 8 bits.
  ANSC_DTYPE_I8 = 5,
  // A signed integer of 16 bits.
  ANSC_DTYPE_I16 = 6,
  // A signed integer of 32 bits.
  ANSC_DTYPE_I32 = 7,
  // A signed integer of 64 bits.
  ANSC_DTYPE_I64 = 8,
  // IEEE half precision.
  ANSC_DTYPE_F16 = 9,
  // The upper half of an `F32`.
  ANSC_DTYPE_BF16 = 10,
  // IEEE single precision.
  ANSC_DTYPE_F32 = 11,
  // IEEE double precision.
  ANSC_DTYPE_F64 = 12,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum AnscDtype AnscDtype;
#else
typedef uint32_t AnscDtype;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A loaded model. It never changes: any number of threads may use it at once, without locks.
typedef struct AnscModel AnscModel;

// The memory and the threads to run a model with. It keeps what it needs of its model alive.
//
// Different sessions may run at the same time. One session runs in one thread at a time: a second
// call meanwhile gives `ANSC_STATUS_BUSY` and changes nothing.
typedef struct AnscSession AnscSession;

// An input, output or state of a model. The pointers belong to the model and live as long as it
// does.
typedef struct AnscPort {
  // In UTF-8, never null.
  const char *name;
  // An `AnscDtype`.
  uint32_t dtype;
  // `rank` extents: the largest possible ones, where the data or the shapes of a run decide, and
  // for a state.
  const size_t *shape;
  // Extents that `shape` points to.
  size_t rank;
  // Bytes of a dense tensor of this type and shape.
  size_t bytes;
  // Whether the value was fixed when the model was compiled: then it need not be given.
  bool is_bound;
} AnscPort;

// An input, or a value for a state, in the caller's memory: a dense row-major tensor.
//
// Data that is not aligned to the size of its element is copied first.
typedef struct AnscInput {
  // In UTF-8, with a zero at the end: the name of an input or a state of the model.
  const char *name;
  // An `AnscDtype`.
  uint32_t dtype;
  // May be null if `rank` is 0.
  const size_t *shape;
  // Extents that `shape` points to.
  size_t rank;
  // May be null if `bytes` is 0.
  const void *data;
  // Size of `data`; compared with type and shape.
  size_t bytes;
} AnscInput;

// How a session is made. All zeros are the defaults.
typedef struct AnscSessionOptions {
  // Threads that run the model, the calling one included; 0 for one per available core. At most
  // 4096: for more, `ansc_session_new` gives `ANSC_STATUS_ARGUMENT`.
  size_t threads;
  // How long idle threads look for work before they sleep, in microseconds; 0 for the default,
  // negative for not at all.
  int64_t spin_microseconds;
  // Cores to pin threads to, the i-th thread to the (i mod `cores_count`)-th of them. The
  // calling thread is left alone. Null for none.
  const size_t *cores;
  // Numbers that `cores` points to.
  size_t cores_count;
  // Not 0: numbers below the smallest normal one of their type are computed with, which takes
  // processors a hundred times as long. 0: they are zeros.
  uint8_t keep_denormals;
} AnscSessionOptions;

// Memory for an output, or for a copy of a state, as `AnscInput`. In a run it must overlap neither
// an input nor another output.
typedef struct AnscOutput {
  // In UTF-8, with a zero at the end: the name of an output or a state of the model.
  const char *name;
  // An `AnscDtype`.
  uint32_t dtype;
  // May be null if `rank` is 0.
  const size_t *shape;
  // Extents that `shape` points to.
  size_t rank;
  // May be null if `bytes` is 0.
  void *data;
  // Size of `data`; compared with type and shape.
  size_t bytes;
} AnscOutput;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The message of the last error in this thread, in UTF-8; empty if there was none.
//
// It is valid until the next call of this library in this thread that fails, and until the thread
// ends. It is never null.
const char *ansc_error_message(void);

// The name of a status in a word or two: "ok", "bad argument", ..
const char *ansc_status_name(uint32_t status);

// The version of this library, such as "0.1.0". Never null, valid for ever.
const char *ansc_version(void);

// Bytes of an element of the `AnscDtype`; 0 if there is no such type.
size_t ansc_dtype_size(uint32_t dtype);

// The name of the `AnscDtype`, such as "f32"; "unknown" if there is no such type. Never null,
// valid for ever.
const char *ansc_dtype_name(uint32_t dtype);

// Loads an artifact from the file `path`, and checks it as far as that is possible.
//
// An artifact is machine code, and loading it is as safe as starting a program: load only what
// you or somebody you trust compiled. Free the model with `ansc_model_free`.
AnscStatus ansc_model_load(const char *path, struct AnscModel **model);

// Loads an artifact as `ansc_model_load` does, but leaves its weights in the pages of the file,
// which all processes share that load it so. Else weights of 16 MiB or more are copied to larger
// pages, which makes models faster that wait for them.
AnscStatus ansc_model_load_shared(const char *path, struct AnscModel **model);

// Loads an artifact that lies in memory, as `ansc_model_load` does from a file. The model keeps a
// copy: the memory may change or go when the function returns. A file is better where there is
// one: its weights get larger pages, or are shared by processes.
AnscStatus ansc_model_load_from_memory(const void *data, size_t size, struct AnscModel **model);

// Frees a model; null is allowed. Its sessions stay usable, its strings and shapes do not.
void ansc_model_free(struct AnscModel *model);

// The name of the ONNX file that the model was compiled from; it lives as long as the model. Null
// if `model` is null.
const char *ansc_model_name(const struct AnscModel *model);

// How many inputs the model has; 0 if `model` is null.
size_t ansc_model_input_count(const struct AnscModel *model);

// How many outputs the model has; 0 if `model` is null.
size_t ansc_model_output_count(const struct AnscModel *model);

// How many states the model has; 0 if `model` is null. They are tensors that a session keeps from
// one run to the next, such as the keys and values of earlier tokens.
size_t ansc_model_state_count(const struct AnscModel *model);

// How many specialisations the model has, at least 1; 0 if `model` is null. Each is for one
// combination of its inputs' shapes, or for all in a range: then its ports have the largest ones.
// A session runs one that takes the shapes of its inputs, one of a single combination first.
size_t ansc_model_specialisation_count(const struct AnscModel *model);

// The name that tells the `index`-th specialisation from the others, such as "batch=4"; empty if
// there is only one. It lives as long as the model. Null if there is none.
const char *ansc_model_specialisation_name(const struct AnscModel *model, size_t index);

// Describes the `index`-th input, from 0, with its shape in the first specialisation.
AnscStatus ansc_model_input(const struct AnscModel *model, size_t index, struct AnscPort *port);

// Describes the `index`-th output, from 0, with its shape in the first specialisation.
AnscStatus ansc_model_output(const struct AnscModel *model, size_t index, struct AnscPort *port);

// Describes the `index`-th state, from 0: the name of the input that it stands in for, and the
// room that each session has for it. `ansc_session_state_shape` tells how much of that is used.
AnscStatus ansc_model_state(const struct AnscModel *model, size_t index, struct AnscPort *port);

// As `ansc_model_input`, of a specialisation.
AnscStatus ansc_model_specialisation_input(const struct AnscModel *model,
                                           size_t specialisation,
                                           size_t index,
                                           struct AnscPort *port);

// As `ansc_model_output`, of a specialisation.
AnscStatus ansc_model_specialisation_output(const struct AnscModel *model,
                                            size_t specialisation,
                                            size_t index,
                                            struct AnscPort *port);

// The extents of the `index`-th output, from 0, in a run with these inputs, of which only names
// and shapes are looked at. Where the data decides too, they are the largest possible ones. Inputs
// may be left out whose shape is not needed to know. Where states of a session decide,
// `ansc_session_shape_of_output` knows.
//
// Writes as many extents as the port has to `shape`, which has room for `capacity` of them.
AnscStatus ansc_model_output_shape(const struct AnscModel *model,
                                   const struct AnscInput *inputs,
                                   size_t inputs_count,
                                   size_t index,
                                   size_t *shape,
                                   size_t capacity);

// Makes a session. `options` may be null. Free it with `ansc_session_free`.
AnscStatus ansc_session_new(const struct AnscModel *model,
                            const struct AnscSessionOptions *options,
                            struct AnscSession **session);

// Frees a session; null is allowed.
void ansc_session_free(struct AnscSession *session);

// Threads that run the model, the calling one included; 0 if `session` is null or running.
size_t ansc_session_threads(const struct AnscSession *session);

// Runs the model: the specialisation that takes inputs of these shapes. Inputs and outputs come by
// name, in any order. Every input must be given but those that are bound; outputs that are not
// given are computed and dropped. An output has the shape that `ansc_model_output_shape` tells, or
// `ansc_session_shape_of_output` where the model has states.
//
// Everything is checked before anything runs. After `ANSC_STATUS_DATA` the outputs may hold
// anything, and the session can be used again. States are then as before the run.
AnscStatus ansc_session_run(struct AnscSession *session,
                            const struct AnscInput *inputs,
                            size_t inputs_count,
                            const struct AnscOutput *outputs,
                            size_t outputs_count);

// The extents of the `index`-th output of the model in the last run: how much of its memory was
// used, densely from the beginning. Before the first run they are those of the first
// specialisation, as `ansc_model_output` describes it.
//
// Writes as many extents as the port has to `shape`, which has room for `capacity` of them.
AnscStatus ansc_session_output_shape(const struct AnscSession *session,
                                     size_t index,
                                     size_t *shape,
                                     size_t capacity);

// The extents of the `index`-th output in a run with these inputs, as `ansc_model_output_shape`
// tells them, with the states that the session has now.
AnscStatus ansc_session_shape_of_output(const struct AnscSession *session,
                                        const struct AnscInput *inputs,
                                        size_t inputs_count,
                                        size_t index,
                                        size_t *shape,
                                        size_t capacity);

// Forgets what earlier runs left: all states are as in a new session, and random numbers begin
// anew.
AnscStatus ansc_session_reset(struct AnscSession *session);

// Begins another sequence of random numbers. With the same seed the next runs repeat what those of
// a new session gave, whose seed is 0.
AnscStatus ansc_session_seed(struct AnscSession *session, uint64_t seed);

// Keeps the first `length` elements of each state along the axis that runs add to, such as the
// keys and values of so many tokens. Shorter states stay as they are.
//
// Where a state does not grow along one axis there is no way back but `ansc_session_reset`:
// `ANSC_STATUS_ARGUMENT`, and nothing changes.
AnscStatus ansc_session_truncate(struct AnscSession *session, size_t length);

// The extents that the `index`-th state has now. Before the first run there is nothing
// along axes that runs add to.
//
// Writes as many extents as the state has to `shape`, which has room for `capacity` of them.
AnscStatus ansc_session_state_shape(const struct AnscSession *session,
                                    size_t index,
                                    size_t *shape,
                                    size_t capacity);

// Copies what a state holds now. `state` has its name and type, its shape now, as
// `ansc_session_state_shape` tells it, and the memory to copy to.
AnscStatus ansc_session_get_state(const struct AnscSession *session,
                                  const struct AnscOutput *state);

// Lets the next run find this in a state. With what `ansc_session_get_state` gave, it goes on from
// there, in this session or in another one of the model.
AnscStatus ansc_session_set_state(struct AnscSession *session, const struct AnscInput *state);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ANSC_H */
/* sources: 6b28f819bd9a1a8314869f66b235635b */
