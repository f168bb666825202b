graph "main"(%x: f32[N,3], %y: i64[] @"in/put") {
  symbol N in [1, 64]
  check N <= 64 @"test"
  slot %count counter "count" : i64[] = tensor<i64[]>{7}
  %0 = constant() {value = tensor<f32[3]>{1, -0.5, 1e-20}} : f32[3]
  %1 = add(%x, %0) : f32[N,3] @"layer/add"
  %2 = reshape(%1) {dims = dims[3*N]} : f32[3*N]
  %3 = concat(%2, %2) {axis = 0} : f32[6*N]
  %4 = trilu(%1, _) {upper = false} : f32[N,3]
  %5 = constant() {value = tensor<i64[]>{1}} : i64[]
  %next = add(%count, %5) : i64[]
  next %count = %next
  may alias output 0 input 0
  return %1 @"out:0", %3, %4
}
