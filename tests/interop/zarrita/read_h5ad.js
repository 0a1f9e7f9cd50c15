// Reads parts of an .h5ad through its reference document, as a viewer in a browser does, and prints them as JSON.
//
//     node read_h5ad.js ADDRESS_OF_DOCUMENT ROW COLUMN... (a column of obs)

import ReferenceStore from "@zarrita/storage/ref";
import * as zarr from "zarrita";

const [address, row, ...columns] = process.argv.slice(2);
const root = zarr.root(await zarr.withConsolidatedMetadata(ReferenceStore.fromSpec(await references(address))));

// The store of @zarrita/storage 0.2.0 looks for keys as they stand in addresses, with %20 for a space. Under any other
// name it finds no chunk, and zarrita takes the fill value.
async function references(address) {
  const spec = await (await fetch(address)).json();
  const encoded = (key) => new URL(key, "https://keys.invalid/").pathname.slice(1);
  return { ...spec, refs: Object.fromEntries(Object.entries(spec.refs).map(([key, ref]) => [encoded(key), ref])) };
}

async function array(path) {
  return zarr.open.v2(root.resolve(path), { kind: "array" });
}

async function values(path, selection) {
  const found = await zarr.get(await array(path), selection);
  return Array.from(found.data ?? [found], (item) => (typeof item === "bigint" ? Number(item) : item));
}

// One axis of plain values, or of strings of which some may be missing (a group with a mask, by newer anndata).
async function vector(path) {
  const { attrs } = await zarr.open.v2(root.resolve(path));
  return values(attrs["encoding-type"] === "nullable-string-array" ? `${path}/values` : path);
}

async function column(path) {
  const { attrs } = await zarr.open.v2(root.resolve(path));
  if (attrs["encoding-type"] === "categorical") {
    return { codes: await values(`${path}/codes`), categories: await vector(`${path}/categories`) };
  }
  return { values: await vector(path) };
}

// Of the row of a matrix in CSR, only the chunks that it lies in.
const [start, stop] = await values("X/indptr", [zarr.slice(Number(row), Number(row) + 2)]);
const matrix = await zarr.open.v2(root.resolve("X"), { kind: "group" });
const frame = await zarr.open.v2(root.resolve("obs"), { kind: "group" });
const embedding = await array("obsm/X_umap");

const result = {
  shape: matrix.attrs.shape,
  indices: await values("X/indices", [zarr.slice(start, stop)]),
  data: await values("X/data", [zarr.slice(start, stop)]),
  order: frame.attrs["column-order"],
  index: await vector(`obs/${frame.attrs._index}`),
  columns: Object.fromEntries(await Promise.all(columns.map(async (name) => [name, await column(`obs/${name}`)]))),
  embedding: { shape: embedding.shape, values: await values("obsm/X_umap", [zarr.slice(10, 20), null]) },
};
process.stdout.write(JSON.stringify(result));
