from nanoengine.context import captured_context


def capture_all(model, buffers, buckets, new_graph):
    def make_body(bucket):
        ids, positions = buffers.input_ids[:bucket], buffers.positions[:bucket]
        out, context = buffers.hidden_states[:bucket], buffers.context(bucket)

        def body():
            with captured_context(context):
                out.copy_(model(ids, positions))

        return body

    bodies = {bucket: make_body(bucket) for bucket in buckets}
    for body in bodies.values():
        body()
        body()
    graphs = {}
    for bucket in reversed(list(buckets)):
        graphs[bucket] = new_graph(bucket)
        first = max(graphs)
        graphs[bucket].capture(bodies[bucket], None if bucket == first else graphs[first].pool())
    return graphs
