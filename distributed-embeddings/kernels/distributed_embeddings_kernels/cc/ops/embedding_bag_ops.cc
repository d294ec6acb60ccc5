// Registration of the embedding bag's operations: names, attributes, shapes.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using tensorflow::OkStatus;
using tensorflow::Status;
using tensorflow::errors::InvalidArgument;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// [samples, columns * dim]
Status OutputShape(InferenceContext* c) {
  tensorflow::PartialTensorShape table;
  TF_RETURN_IF_ERROR(c->GetAttr("table_shape", &table));
  std::vector<int64_t> hotness;
  TF_RETURN_IF_ERROR(c->GetAttr("hotness", &hotness));
  bool ragged;
  TF_RETURN_IF_ERROR(c->GetAttr("ragged", &ragged));
  DimensionHandle samples, width;
  ShapeHandle of_ids;
  if (ragged) {
    ShapeHandle splits;
    TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 1, &splits));
    TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &of_ids));
    TF_RETURN_IF_ERROR(c->Subtract(c->Dim(splits, 0), 1, &samples));
  } else {
    if (!c->WithRank(c->input(1), 2, &of_ids).ok()) {
      return InvalidArgument("EmbeddingBag: ids must be [samples, sum of hotness], got ",
                             c->DebugString(c->input(1)));
    }
    samples = c->Dim(of_ids, 0);
  }
  TF_RETURN_IF_ERROR(c->Multiply(c->MakeDim(table.dim_size(1)),
                                 static_cast<int64_t>(hotness.size()), &width));
  c->set_output(0, c->Matrix(samples, width));
  return OkStatus();
}

}  // namespace

// The ids of a batch, see embedding_bag.h. `splits` and `weights` have no elements where there are
// none. A column of the attributes is one output vector of a sample.
#define IDS(count)                       \
  Input("ids: " count "Tids")            \
      .Input("splits: " count "int64")   \
      .Input("weights: " count "float")  \
      .Attr("Tids: {int32, int64}")      \
      .Attr("hotness: list(int)")        \
      .Attr("row_offsets: list(int)")    \
      .Attr("num_rows: list(int)")       \
      .Attr("mean: list(bool)")

REGISTER_OP("ResourceEmbeddingBag")
    .Input("table: resource")
    .IDS("")
    .Attr("ragged: bool")
    .Attr("table_shape: shape")
    .Attr("T: {float, half, bfloat16}")
    .Attr("Tout: {float, half, bfloat16}")
    .Output("output: Tout")
    .SetShapeFn(OutputShape);

// The rows that occur, ascending, and the sums of their gradients.
REGISTER_OP("EmbeddingBagGradient")
    .IDS("num_uses * ")
    .Input("gradients: num_uses * G")
    .Attr("num_uses: int >= 1")
    .Attr("num_columns: list(int)")
    .Attr("ragged: list(bool)")
    .Attr("table_shape: shape")
    .Attr("G: {float, half, bfloat16}")
    .Attr("T: {float, half, bfloat16}")
    .Output("rows: int64")
    .Output("sums: T")
    .SetShapeFn([](InferenceContext* c) {
      tensorflow::PartialTensorShape table;
      TF_RETURN_IF_ERROR(c->GetAttr("table_shape", &table));
      const DimensionHandle rows = c->UnknownDim();
      c->set_output(0, c->Vector(rows));
      c->set_output(1, c->Matrix(rows, table.dim_size(1)));
      return OkStatus();
    });

// Moves the rows that occur; with "adam", and with all_rows, every row. scalars: gradient_factor,
// rate, kept, epsilon, beta1, beta2.
REGISTER_OP("ResourceEmbeddingBagUpdate")
    .Input("table: resource")
    .Input("slots: num_slots * resource")
    .Input("scalars: float")
    .IDS("num_uses * ")
    .Input("gradients: num_uses * G")
    .Attr("num_slots: int >= 0")
    .Attr("num_uses: int >= 1")
    .Attr("num_columns: list(int)")
    .Attr("ragged: list(bool)")
    .Attr("optimizer: {'sgd', 'adagrad', 'rowwise_adagrad', 'lazy_adam', 'adam', 'momentum', "
          "'nesterov', 'rmsprop'}")
    .Attr("all_rows: bool = false")
    .Attr("epsilon_in_root: bool = false")
    .Attr("G: {float, half, bfloat16}")
    .Attr("T: {float, half, bfloat16}")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

// A new table or state of an optimizer on a CPU, in huge pages where the system has them.
REGISTER_OP("EmbeddingBagFill")
    .Input("value: T")
    .Attr("shape: shape")
    .Attr("T: {float, half, bfloat16}")
    .Output("output: T")
    .SetIsStateful()  // a buffer of its own for each variable, never a constant
    .SetShapeFn(tensorflow::shape_inference::ExplicitShape);
