// Restores a picture. The types in aps.ts are generated from the service's OpenAPI document: npm run generate
//
//   node build/restore.js photo.png restored.png [http://127.0.0.1:8000]

import { readFile, writeFile } from "node:fs/promises";
import createClient from "openapi-fetch";
import type { paths } from "./aps.js";

const [source = "photo.png", target = "restored.png", baseUrl = "http://127.0.0.1:8000"] = process.argv.slice(2);
const aps = createClient<paths>({ baseUrl });

const image = `data:image/png;base64,${await readFile(source, "base64")}`;
const submitted = await aps.POST("/v1/restore", { body: { image, operator: { type: "denoise" }, preset: "fast" } });
if (submitted.error) throw new Error(submitted.error.detail);

let job = submitted.data;
while (job.state === "queued" || job.state === "running") {
  await new Promise((resolve) => setTimeout(resolve, 500));
  const asked = await aps.GET("/v1/jobs/{job_id}", { params: { path: { job_id: job.id } } });
  if (asked.error) throw new Error(asked.error.detail);
  job = asked.data;
}
if (job.state !== "succeeded") throw new Error(job.error?.detail ?? job.state);

const file = await aps.GET("/v1/jobs/{job_id}/artifacts/{name}", {
  params: { path: { job_id: job.id, name: "result.png" } },
  parseAs: "arrayBuffer",
});
if (!file.data) throw new Error("the result has expired");
await writeFile(target, new Uint8Array(file.data));
console.log(`${target}: ${job.output_size?.join("x")} pixels`);
